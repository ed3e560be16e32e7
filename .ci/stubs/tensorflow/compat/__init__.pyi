from typing import Any

from . import v1 as v1

def __getattr__(name: str) -> Any: ...
