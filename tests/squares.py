"""Python sources that worker processes import, which takes them no TensorFlow."""

import os
import sys
import time

import numpy as np


class Squares:
    """Example i is ({"i": [i, i * i], "n": -i}, i); some fail, if they are to."""

    def __init__(self, n=10, **faults):
        self.n, self.faults = n, faults

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        fault = next((name for name, at in self.faults.items() if at == i), None)
        features = {"i": np.array([i, i * i], np.float32), "n": np.int16(-i)}
        if fault == "raises":
            raise KeyError("nothing there")
        if fault == "exits":
            os._exit(7)
        if fault == "sleeps":
            time.sleep(1000)
        if fault == "grows":
            features["i"] = np.zeros(3, np.float32)
        if fault == "is_nan":
            features["i"][1] = np.nan
        if fault == "lacks":
            del features["n"]
        if fault == "is_four":
            return features, i, 1, 2
        if fault == "is_negative":
            return features, i, -1
        if fault == "prints":
            print("this is not a row")
        return (features, i, i / 2) if self.faults.get("weighs") else (features, i)


class Modules:
    """Example i is whether TensorFlow is imported where it is read."""

    def __len__(self):
        return 1

    def __getitem__(self, i):
        return np.bool_("tensorflow" in sys.modules)
