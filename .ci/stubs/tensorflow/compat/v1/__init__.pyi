from typing import Any

from . import data as data
from . import train as train

def __getattr__(name: str) -> Any: ...
