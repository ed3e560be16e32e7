"""Users' models, and errors in them."""

import dataclasses
import functools
import sys
import types
from unittest import mock

from absl.testing import parameterized

import models
from models import user_model

_MLP = models.get("mlp")


class _Looser(models.Model):
    def __post_init__(self):
        pass


@dataclasses.dataclass(frozen=True)
class _WithMore(models.Model):
    num_parameters: int = 0
    more: int = 3


class _Losing(models.Model):
    def loss(self, outputs, labels):
        raise NotImplementedError


class _Running(models.Model):
    def run(self, x):
        return x


class _Decaying(models.Recipe):
    def decays(self, name):
        return True


class _Empty(models.Model):
    def __init__(self):
        pass


class _Inputs(models.Images):
    def __post_init__(self):
        pass


def _like(kind, part=_MLP, **others):
    """A part of another class, with other fields."""
    fields = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    return kind(**fields | others)


def _module() -> types.ModuleType:
    """A user's."""
    module = types.ModuleType("a_users_module")
    module.number = lambda: 3
    module.sized = lambda size: _MLP
    module.wrapped = functools.wraps(module.sized)(lambda: _MLP)
    module.failing = lambda: {}["size"]
    module.slip = lambda: dataclasses.replace(_MLP, recipe=None)
    module.misfit = lambda: dataclasses.replace(_MLP, loss=lambda outputs: 0)
    module.more = lambda: _like(_WithMore)
    module.loose = lambda: _like(_Looser, blocks=5)
    module.empty = _Empty
    module.losing = lambda: _like(_Losing)
    module.running = lambda: _like(_Running)
    decaying = _like(_Decaying, _MLP.recipe)
    module.decaying = lambda: dataclasses.replace(_MLP, recipe=decaying)
    inputs = _Inputs(shape=(8, 8, 1), num_classes="x")
    module.shapeless = lambda: dataclasses.replace(_MLP, inputs=inputs)
    return module


class UserModelTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(sys.modules, a_users_module=_module())
        self.enter_context(patch)

    def test_a_class_with_more_fields(self):
        self.assertEqual(user_model.get("a_users_module:more").more, 3)

    def test_a_decorated_function(self):
        self.assertIs(user_model.get("a_users_module:wrapped"), _MLP)

    @parameterized.parameters(
        ("a_users_module:number", "number returned int, not a models.Model"),
        ("a_users_module:sized", "sized is to take nothing .* argument: 'size'"),
    )
    def test_refuses(self, name, sentence):
        with self.assertRaisesRegex(ValueError, f"^model={name}: .*{sentence}"):
            user_model.get(name)

    @parameterized.parameters(
        ("failing", "KeyError: 'size'"),
        ("slip", "Model.recipe is None"),
        ("misfit", r"loss of model 'mlp' must take \(outputs, labels\): too many"),
        ("loose", "no whole model: _Looser.blocks is 5, and must be"),
        ("empty", "no whole model: AttributeError: .* no attribute 'name'"),
        ("shapeless", "no whole model: _Inputs.num_classes is 'x', and must be"),
        ("losing", r"_Losing.loss is not for .*; hand Model\(...\) .* blocks, loss"),
        ("running", "_Running.run is not for a subclass to change; hand Model"),
        ("decaying", r"_Decaying.decays is .*; hand Recipe\(...\) .* as decayed"),
    )
    def test_names_the_place(self, name, sentence):
        name = f"a_users_module:{name}"
        with self.assertRaisesRegex(
            ValueError,
            rf"^model={name}: .*{sentence}.* \(.*user_model_test.py:\d+\)$",
        ):
            user_model.get(name)
