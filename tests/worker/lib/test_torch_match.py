"""test_torch_match.py - thinwire.torch on models as scripts have them, without a daemon."""
import logging
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "worker/python"))

try:
    import torch
except ImportError:
    print("this Python has no torch: skipped")
    sys.exit(77)

import thinwire.torch as tw  # noqa: E402
from thinwire.worker import Tensor, ThinwireError, Worker  # noqa: E402

# pylint: disable=protected-access


def run_of(*tensors):
    """A run with these names and shapes."""
    return types.SimpleNamespace(name="r", tensors=[Tensor(*tensor) for tensor in tensors])


class Net(torch.nn.Module):
    """A tied head, a layer with running statistics, a scalar and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(8, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.base = torch.nn.Linear(4, 4, bias=False).requires_grad_(False)
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.wte.weight


NORM = (("norm.weight", (4,)), ("norm.bias", (4,)))


def fault(*tensors):
    """The message about a run that the model is not of."""
    try:
        tw._match(run_of(*tensors), Net())
    except ThinwireError as error:
        return str(error)
    raise AssertionError("the model was taken")


def log_of(call):
    """The lines that a call logs."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    tw.LOG.addHandler(handler)
    tw.LOG.setLevel(logging.INFO)
    call()
    tw.LOG.removeHandler(handler)
    return lines


def names_match():
    """Tied names, scalars and buffers."""
    net = Net()
    for tied in ("wte.weight", "head.weight"):  # safetensors keeps either name
        chosen = tw._match(run_of((tied, (8, 4)), *NORM, ("scale", (1,))), net)
        assert chosen[0] is net.wte.weight and chosen[3] is net.scale
    text = fault(("wte.weight", (8, 4)), ("head.weight", (8, 4)))
    assert "head.weight: tied to wte.weight in the model" in text, text
    text = fault(("wte.weight", (8, 4)), ("norm.running_mean", (4,)))
    assert "norm.running_mean: a buffer, which is not merged" in text, text
    assert "--frozen norm.running_mean" in text, text
    assert "shape (8, 4) in the model, (8, 5) in the run" in fault(("wte.weight", (8, 5)))


def rest_is_told():
    """Parts that the run lacks are named: silently different models were the result."""
    net = Net()
    lines = log_of(lambda: tw._warn_of_rest(net, tw._match(run_of(("wte.weight", (8, 4))), net)))
    warnings = " | ".join(text for level, text in lines if level == "WARNING")
    assert "scale, norm.weight, norm.bias: each node trains its own" in warnings, lines
    assert "norm.running_mean, norm.running_var" in warnings, lines
    assert "base.weight" not in warnings and "base.weight" in str(lines), lines
    whole = [("wte.weight", (8, 4)), *NORM, ("scale", (1,))]
    lines = log_of(lambda: tw._warn_of_rest(net, tw._match(run_of(*whole), net)))
    assert not any("trains its own" in text for _, text in lines), lines


def moments_of_every_adam():
    """A resume puts moments in place, after which the optimizer's next step works."""
    for options in ({}, {"amsgrad": True}, {"capturable": False}):
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **options)
        module = tw._Module(list(net.parameters()), optimizer, net)
        for array in tw.MOMENTS:
            for index, parameter in enumerate(net.parameters()):
                module.put(array, index, 0, torch.full((parameter.numel(),), 0.5))
        module.set_updates(7)
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert float(optimizer.state[net.weight]["step"]) == 8


def rates():
    """The script's rates are its own; the run's are taken by a word, and told."""
    def node(lr):
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.1}],
                                    lr=0.2)
        worker = types.SimpleNamespace(run=None, setting={"train.lr": "0.003",
                                                          "train.schedule": "cosine"}.get)
        module = tw._Module(list(net.parameters()), optimizer, net)
        made = tw.Node(worker, module, net, lr == "run")
        made._follow(types.SimpleNamespace(is_restored=False, lr=0.003, updates=0))
        return [group["lr"] for group in optimizer.param_groups]

    assert node("own") == [0.2, 0.1]
    lines = log_of(lambda: node("run"))
    assert "at most 0.003 by schedule cosine, in place of the optimizer's 0.2" in lines[0][1], lines
    assert node("run") == [0.003, 0.0015]
    assert tw.attach.__kwdefaults__["lr"] == "own"


class NoLibrary:  # pylint: disable=too-few-public-methods
    """A library that is not to be called."""

    def __getattr__(self, name):
        def called(*_):
            raise AssertionError(f"{name} was called")
        return called


def calls_after_close():
    """A closed worker says so. It was a segmentation fault."""
    worker = Worker.__new__(Worker)
    worker._handle, worker._c, worker._has_step = None, NoLibrary(), False
    worker._next = worker._error = tw.c.Error()
    for call in (lambda: worker.step(1.0), lambda: worker.draw(0), worker.heldout_count,
                 lambda: worker.setting("train.lr"), lambda: worker.sample("a", "b")):
        try:
            call()
        except ThinwireError as error:
            assert "closed" in str(error)
        else:
            raise AssertionError("a closed worker did as told")


for check in (names_match, rest_is_told, moments_of_every_adam, rates, calls_after_close):
    check()
    print(f"{check.__name__}: passed")
