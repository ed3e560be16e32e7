"""The picture of a graph shows its scopes, devices and transfers."""

import xml.etree.ElementTree

from absl.testing import parameterized

from towers.session import graph_picture
from towers.session.traffic import Scope, Scopes, Traffic, Transfer

_DEVICES = [f"/device:CPU:{k}" for k in range(3)]


def _scopes(towers: int, parts: dict[str, str]) -> Scopes:
    by_name = {
        name: Scope(_DEVICES[:1], 7, 0, {})
        for name in ("input", "variables", "reduction", "update")
    }
    by_name["variables"] = Scope(_DEVICES, 7, 5000, {})
    sent = {("reduction", "update"): Transfer(1, 4321, 0)}
    for k in range(towers):
        by_name[f"tower_{k}"] = Scope(_DEVICES[1:], 7, 0, parts)
        sent["variables", f"tower_{k}"] = Transfer(1, 1000 + k, 0)
    return Scopes(by_name, sent)


def _traffic(devices: list[str], sent: dict[tuple[str, str], Transfer]) -> Traffic:
    return Traffic(devices, {device: ["variables 1 B"] for device in devices}, sent)


def _parse(text: str) -> tuple[list[str], list[str]]:
    """The texts, and what shapes say when pointed at."""
    root = xml.etree.ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    texts = [node.text for node in root.iter(f"{space}text")]
    return texts, [node.text for node in root.iter(f"{space}title")]


class GraphPictureTest(parameterized.TestCase):
    def test_scopes(self):
        scopes = _scopes(2, {"stage_0": _DEVICES[1], "stage_1": _DEVICES[2]})
        scopes.sent["tower_0", "tower_1"] = Transfer(1, 2000, 0)
        picture = graph_picture.draw(scopes, _traffic(_DEVICES, {}), "a < b & c")
        texts, tooltips = _parse(picture)
        self.assertEqual(texts[0], "a < b & c")
        self.assertContainsSubset(
            [
                *scopes.by_name,
                "7 operations on CPU:0",
                "5 kB, 7 operations on CPU:0 and 2 more",
                "CPU:1, CPU:2",
                "1 kB",
                "4.32 kB",
                "Also: tower_0 to tower_1: 2 kB",
            ],
            texts,
        )
        self.assertIn("tower_1/stage_1 on /device:CPU:2", tooltips)

    def test_many_towers_and_parts_are_shortened(self):
        scopes = _scopes(20, {f"block{k:02}_{40 * 'x'}": _DEVICES[1] for k in range(9)})
        texts, _ = _parse(graph_picture.draw(scopes, _traffic(_DEVICES, {}), "many"))
        towers = [text for text in texts if text.startswith("tower_")]
        self.assertEqual(towers, [*(f"tower_{k}" for k in range(6)), "tower_19"])
        self.assertIn("... 13 more", texts)
        self.assertEqual(texts.count("... 3 more"), len(towers))
        self.assertNotIn("block06", "".join(texts))
        self.assertIn("block08", "".join(texts))
        self.assertLess(max(map(len, texts[:-8])), 90)

    def test_devices(self):
        sent = {(_DEVICES[0], _DEVICES[2]): Transfer(3, 5_000_000, 1)}
        picture = graph_picture.draw(_scopes(1, {}), _traffic(_DEVICES, sent), "few")
        texts, tooltips = _parse(picture)
        for k, device in enumerate(_DEVICES):
            self.assertIn(f"{k}  {device}", texts)
        self.assertContainsSubset(["variables 1 B", "5 MB +"], texts)
        self.assertIn("0 to 2: 3 tensors, 5 MB +", tooltips)

    def test_many_devices_have_squares_without_numbers(self):
        devices = [f"/device:CPU:{k}" for k in range(40)]
        sent = {(devices[0], devices[1]): Transfer(3, 5_000_000, 1)}
        picture = graph_picture.draw(_scopes(1, {}), _traffic(devices, sent), "many")
        texts, tooltips = _parse(picture)
        self.assertIn("0 to 1: 3 tensors, 5 MB +", tooltips)
        self.assertNotIn("5 MB +", texts)

    def test_devices_of_a_task(self):
        scopes = _scopes(1, {})
        device = "/job:worker/replica:0/task:3/device:GPU:1"
        scopes.by_name["tower_0"] = Scope([device], 7, 0, {})
        traffic = _traffic([*_DEVICES, device], {})
        texts, _ = _parse(graph_picture.draw(scopes, traffic, "cluster"))
        self.assertIn("worker 3 GPU:1", texts)
