from typing import Any

from . import compat as compat

def __getattr__(name: str) -> Any: ...
