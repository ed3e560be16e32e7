"""python -m tests.deploy.manifest_fields my-jobset.yaml

Names the fields of edited manifests that Kubernetes' strict check would refuse.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

# Kind of object -> its fields and their types; "!" marks a required one.  From the
# client of Kubernetes 1.37 (pip's kubernetes 37.0.2), the JobSet API v1alpha2
# (kubernetes-sigs/jobset 0336a8f, api/jobset/v1alpha2/jobset_types.go) and the TFJob
# API v1 (kubeflow/training-operator 186ac6c, pkg/apis/kubeflow.org/v1), all under the
# Apache License 2.0; only the kinds that the manifests have.
_FILE = pathlib.Path(__file__).with_name("kubernetes_fields.json")
_FIELDS = json.loads(_FILE.read_text())
_SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "quantity": (str, int),
    "object": (object,),
}


def problems(document: Any) -> Iterator[str]:
    """What the API server's strict check would say of a document of a manifest."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if isinstance(kind, str) and {"kind", "kind!"}.intersection(_FIELDS.get(kind, ())):
        yield from _of(document, kind, kind)
    else:
        yield f"kind {kind!r} is not known here"


def _of(value: Any, kind: str, path: str) -> Iterator[str]:
    """The problems of an object or a part of one."""
    if match := re.fullmatch(r"(list|dict)\[(.*)\]", kind):
        if not isinstance(value, dict if match[1] == "dict" else list):
            yield f"{path} is no {match[1]}"
            return
        parts = value.items() if match[1] == "dict" else enumerate(value)
        for key, part in parts:
            yield from _of(part, match[2], f"{path}[{key}]")
    elif kind in _SCALARS:
        right = isinstance(value, _SCALARS[kind])
        if not right or (isinstance(value, bool) and kind not in ("bool", "object")):
            yield f"{path} is no {kind}"
    elif not isinstance(value, dict):
        yield f"{path} is no {kind}"
    else:
        fields = {name.rstrip("!"): part for name, part in _FIELDS[kind].items()}
        missing = {n[:-1] for n in _FIELDS[kind] if n[-1] == "!"} - set(value)
        yield from (f"{path} lacks {name}" for name in sorted(missing))
        for name, part in value.items():
            if name not in fields:
                yield f"{path} has no field {name}"
            else:
                yield from _of(part, fields[name], f"{path}.{name}")


def main(paths: Sequence[str]) -> int:
    """Prints the problems of some files; returns 2 if there are any."""
    status = 0
    for path in paths:
        try:
            documents = yaml.safe_load_all(pathlib.Path(path).read_text())
            faults = [
                w for each in documents if each is not None for w in problems(each)
            ]
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            faults = [" ".join(str(error).split())]
        for words in faults:
            print(f"error: {path}: {words}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
