"""Every operation on a GPU has a kernel for it, which can be seen without a GPU.

Placement is hard, so one operation without a kernel on its device would end a run on
its first step.  What kernels there are, TensorFlow's C API says.
"""

import ctypes
import dataclasses
import functools
import os
from collections.abc import Iterator
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from models.model import Model
from towers import graph, planning
from towers.evaluation import evaluator
from towers.optimizers import optimizer
from towers.session import device_loop, mean_check, replicas, summary

v1 = tf.compat.v1

# Calls of functions have no kernel, and control flow is lowered.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If")


class _Buffer(ctypes.Structure):
    """`TF_Buffer` of TensorFlow's C API."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    )


@functools.cache
def _on_gpu(operation: str) -> list[dict[str, set[int]]]:
    """Of each kernel of a type of operation that GPUs have: attribute -> the types
    that it may have."""
    library = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
    api = ctypes.CDLL(library)
    api.TF_NewStatus.restype = ctypes.c_void_p
    find = api.TF_GetRegisteredKernelsForOp
    find.restype = ctypes.POINTER(_Buffer)
    find.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    kernel_list = find(operation.encode(), api.TF_NewStatus()).contents
    text = ctypes.string_at(kernel_list.data, kernel_list.length)
    kernels = []
    for kernel in _strings(text, "KernelList", "kernel"):
        if set(_strings(kernel, "KernelDef", "device_type")) & {b"GPU", b"DEFAULT"}:
            kernels.append({})
            for limit in _strings(kernel, "KernelDef", "constraint"):
                kind = "KernelDef.AttrConstraint"
                [name] = _strings(limit, kind, "name")
                [types] = _strings(limit, kind, "allowed_values")
                allowed = v1.AttrValue.FromString(types).list.type
                kernels[-1][name.decode()] = set(allowed)
    return kernels


def _strings(message: bytes, kind: str, field: str) -> list[bytes]:
    """A field of one of TensorFlow's protocol buffers."""
    kind = f"tensorflow.{kind}"
    _, [values] = tf.io.decode_proto([message], kind, [field], [tf.string])
    return values.numpy()[0].tolist()


def _takes(kernel: dict[str, set[int]], node: v1.NodeDef) -> bool:
    """Whether a kernel is for the node's types."""
    for name, allowed in kernel.items():
        attr = node.attr.get(name, v1.AttrValue())
        types = list(attr.list.type) or [attr.type] * bool(attr.type)
        if set(types) - allowed:
            return False
    return True


def _without_kernel(graph_def: v1.GraphDef) -> Iterator[str]:
    """The operations on GPUs, and in functions called there, that have no kernel."""
    functions = {f.signature.name: f for f in graph_def.library.function}
    seen = set()
    waiting = [(node, node.device) for node in graph_def.node]
    while waiting:
        node, device = waiting.pop()
        if "GPU" not in device:
            continue
        called = [a.func.name for a in node.attr.values() if a.func.name in functions]
        for name in set(called) - seen:
            seen.add(name)
            nodes = functions[name].node_def
            waiting += [(inner, inner.device or device) for inner in nodes]
        if node.op not in _CALLS and not any(_takes(k, node) for k in _on_gpu(node.op)):
            types = sorted(str(a.type) for a in node.attr.values() if a.type)
            yield f"{node.op} of types {', '.join(types)}: {node.name}"


def _graphs(**settings) -> list[v1.GraphDef]:
    """All that a run builds on GPUs, which there need not be."""
    settings = {"data_name": "synthetic", "batch_size": 4} | settings
    devices = [tf.config.PhysicalDevice(f"GPU:{k}", "GPU") for k in range(8)]
    with mock.patch.object(tf.config, "list_physical_devices", return_value=devices):
        evaluates = settings["data_name"] != "synthetic"
        config_made = config.make(
            device="gpu", num_batches=2, eval_at_end=evaluates, **settings
        )
        plan = planning.make(config_made, models.get)
        built = graph.build(**plan.parts)
    with built.graph.as_default():
        evaluator.attach(plan, built)
        summary.build(built, 3)
        if config_made.variables.check_replicas_every:
            replicas.same(built.mode)
        if config_made.training.steps_per_loop > 1:
            device_loop.build(built.train_op, built.step, built.loss)
    first = mean_check.build(plan.options, plan.placement)
    return [train.graph.as_graph_def() for train in (built, first)]


def short_resnet() -> Model:
    """One unit of each kind that `resnet20` has, which is long to cut and to sync."""
    whole = models.get("resnet20")
    kept = ("stem", "stage1_unit1", "stage2_unit1", "logits")
    blocks = [(name, block) for name, block in whole.blocks if name in kept]
    return dataclasses.replace(whole, blocks=tuple(blocks), num_parameters=0)


_RESNET = f"{__name__}:short_resnet"
_STAGES = {"num_stages": 2, "num_micro_batches": 2, "partition": "flops"}


class GpuKernelsTest(parameterized.TestCase):
    @parameterized.parameters(
        {"model": "lenet", "data_name": "digits", "steps_per_loop": 3},
        {"model": "lenet", "cross_replica_sync": False, "max_staleness": 2},
        {"model": "lenet", "local_parameter_device": "gpu", "partition_bytes": 20_000},
        {"model": "lenet", "variable_update": "replicated", "all_reduce_spec": "nccl"},
        {"model": "lenet", "variable_update": "replicated", "check_replicas_every": 1},
        {"model": "lenet", "use_fp16": True, "fp16_enable_auto_loss_scale": True},
        {"model": "cifar10_tutorial", "staged_vars": True, "use_fp16": True},
        {"model": _RESNET, "data_format": "NCHW", "use_fp16": True},
        {"model": _RESNET, "batch_norm": "sync", "compute_dtype": "bfloat16"},
        {"model": _RESNET, **_STAGES},
        {"model": _RESNET, "schedule": "gpipe", "batch_norm": "tower", **_STAGES},
        {
            "model": "transformer_lm",
            "data_name": "shakespeare",
            "shard_classifier": 2,
            **_STAGES,
        },
        {"model": "lstm_lm", "recompute": "block", **_STAGES},
        {"model": "lstm_lm", "accumulate_steps": 2},
        {"model": "ncf", "optimizer": "lamb", **_STAGES},
        {"model": "ncf", "shard_embeddings": 2, "sparse_to_dense_grads": True},
    )
    def test_every_operation_has_one(self, **settings):
        count = 4 if "num_stages" in settings else 2
        for graph_def in _graphs(num_gpus=count, **settings):
            devices = {node.device for node in graph_def.node}
            self.assertContainsSubset({"/device:GPU:0", "/device:GPU:1"}, devices)
            self.assertEmpty(list(_without_kernel(graph_def)))

    def test_finds_what_has_none(self):
        with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
            halves = tf.split(tf.zeros([4]), 2)
            numbers = tf.split(tf.zeros([4], tf.int32), 2, name="numbers")
            tf.function(lambda x: tf.strings.length(tf.as_string(x)))(halves[0])
        lacking = list(_without_kernel(graph.as_graph_def(add_shapes=False)))
        self.assertLen(numbers, 2)
        self.assertCountEqual(
            [line.split(" of ")[0] for line in lacking],
            ["Split", "AsString", "StringLength"],
        )

    @parameterized.parameters(sorted(optimizer.OPTIMIZERS))
    def test_of_every_optimizer(self, name):
        settings = {"model": "ncf", "local_parameter_device": "gpu", "ema_decay": 0.9}
        for graph_def in _graphs(num_gpus=2, optimizer=name, **settings):
            self.assertEmpty(list(_without_kernel(graph_def)))
