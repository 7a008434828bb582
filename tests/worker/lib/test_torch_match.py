"""test_torch_match.py - thinwire.torch on models as scripts have them, without a daemon."""
import hashlib
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
    chosen = tw._match(run_of(("wte.weight", (8, 4)), ("norm.running_var", (4,))), net)
    assert chosen[1] is net.norm.running_var
    text = fault(("wte.weight", (8, 4)), ("norm.num_batches_tracked", (1,)))
    assert "norm.num_batches_tracked: a buffer, which is not merged" in text, text
    assert "--frozen norm.num_batches_tracked" in text, text
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


def buffers_are_merged():
    """Running statistics are tensors of the run, without moments; a variance stays positive."""
    net = Net()
    names = dict(tw._shapes(net, []))
    assert names["norm.running_var"] == (4,) and "norm.num_batches_tracked" not in names
    assert "norm.running_var" not in dict(tw._shapes(net, ["*.running_*"]))
    chosen = tw._match(run_of(*names.items()), net)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
    module = tw._Module(chosen, optimizer, net)
    at = list(names).index("norm.running_var")
    module.put(tw.c.PARAMETERS, at, 0, torch.tensor([-1.0, 0.5, 2.0, 3.0]))
    assert net.norm.running_var.tolist() == [0.0, 0.5, 2.0, 3.0]
    module.put(tw.c.MOMENT1, at, 0, torch.ones(4))
    module.set_updates(3)
    assert net.norm.running_var not in optimizer.state
    assert tw._shapes(torch.nn.Conv3d(2, 3, 2), [])[0][1] == (3, 2, 2, 4)


def differences_are_named():
    """Frozen weights, tied names and types that differ from the run's are found and named."""
    def refusal(change):
        torch.manual_seed(1)
        first = Net()
        torch.manual_seed(1)
        second = Net()
        change(second)
        try:
            tw._compare(tw._facts(first)[0].base(), second, "r")
        except ThinwireError as error:
            return str(error)
        return None

    def of_two(net):
        net.more = torch.nn.Linear(2, 2).requires_grad_(False)

    def other(net):
        net.base.weight.data[0, 0] += 1

    def untie(net):
        net.head.weight = torch.nn.Parameter(net.wte.weight.detach().clone())

    assert refusal(lambda net: None) is None
    assert "frozen parameter base.weight has other numbers" in refusal(other)
    assert "other names share a parameter (here none)" in refusal(untie)
    assert "other parameters are frozen" in refusal(of_two)
    assert "have other types" in refusal(lambda net: net.base.half())
    lines = log_of(lambda: refusal(lambda net: net.norm.half()))
    assert "have other types than those of the node that made" in lines[0][1], lines
    tw._compare("ab" * 32, Net(), "r")  # the SHA-256 of a file says nothing about a module
    many = [(f"w{i}", torch.randn(5)) for i in range(300)]
    changed = [(name, x + (i in (7, 250))) for i, (name, x) in enumerate(many)]
    told = tw.facts.differences(tw.facts.of([], many, []), tw.facts.of([], changed, []),
                                [name for name, _ in many], [])
    assert told == ["several of the 300 frozen parameters have other numbers"], told


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


class Packed(torch.nn.Module):
    """A linear layer as QLoRA has it: frozen whole numbers, their scales, and a LoRA adapter with
    the names of peft."""

    def __init__(self, width, trained=False):
        super().__init__()
        whole = torch.randint(0, 256, (width, width), dtype=torch.uint8)
        self.weight = torch.nn.Parameter(whole, requires_grad=False)
        self.register_buffer("scale", torch.rand(width, 1) / 128)
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(width, 2, bias=False)})
        self.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, width, bias=False)})
        if not trained:
            torch.nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x):
        """Base and adapter."""
        base = x @ ((self.weight.float() - 128) * self.scale).t()
        return base + 8 * self.lora_B["default"](self.lora_A["default"](x))


def adapted(seed, **options):
    """A model with an adapter, made by a script that has drawn other numbers before."""
    torch.manual_seed(1)
    base = torch.nn.Sequential(Packed(6, **options), torch.nn.BatchNorm1d(6))
    torch.manual_seed(seed)
    if not options:
        torch.nn.init.normal_(base[0].lora_A["default"].weight)
    return base


def adapters_are_merged_by_one_factor():
    """One factor follows from the run's name, and the mean of the other is that of the products."""
    nets = [adapted(seed) for seed in (2, 3, 4)]
    for net in nets:
        tw._fix_adapters(net, "tuned")
        assert [name for name, _ in tw._shapes(net, [])] == [
            "0.lora_B.default.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"]
        tw._compare(tw._facts(nets[0])[0].base(), net, "tuned")
    first = nets[0][0].lora_A["default"].weight
    assert all(torch.equal(net[0].lora_A["default"].weight, first) for net in nets)
    assert float(first.abs().max()) <= 6**-0.5 and float(first.std()) > 0.1
    digest = hashlib.sha256(first.detach().numpy().tobytes()).hexdigest()[:16]
    assert digest == "c02d462db02073dc", digest  # nodes of other versions draw the same
    for net in nets:
        torch.nn.init.normal_(net[0].lora_B["default"].weight)
    x = torch.randn(5, 6)
    wanted = sum(net[0](x) for net in nets) / 3
    with torch.no_grad():
        mean = sum(net[0].lora_B["default"].weight for net in nets) / 3
        nets[0][0].lora_B["default"].weight.copy_(mean)
    assert torch.allclose(nets[0][0](x), wanted, atol=1e-5)

    other = adapted(2)
    other[0].scale[0] += 1
    tw._fix_adapters(other, "tuned")
    try:
        tw._compare(tw._facts(nets[0])[0].base(), other, "tuned")
        raise AssertionError("another base was taken")
    except ThinwireError as error:
        assert "frozen parameter 0.scale has other numbers" in str(error), error
        assert "load the same base model before" in str(error), error


def trained_adapters_are_kept():
    """An adapter that has learned keeps its factors, and so does one that the script froze."""
    net = adapted(2, trained=True)
    before = net[0].lora_A["default"].weight.detach().clone()
    tw._fix_adapters_of(run_of(("0.lora_B.default.weight", (6, 2))), net)
    assert torch.equal(net[0].lora_A["default"].weight, before)
    assert not net[0].lora_A["default"].weight.requires_grad
    net = adapted(2)
    before = net[0].lora_A["default"].weight.requires_grad_(False).detach().clone()
    tw._fix_adapters(net, "tuned")
    assert torch.equal(net[0].lora_A["default"].weight, before)
    net = adapted(2)
    tw._fix_adapters_of(run_of(("0.lora_A.default.weight", (2, 6)),
                               ("0.lora_B.default.weight", (6, 2))), net)
    assert net[0].lora_A["default"].weight.requires_grad, "the run has both factors"


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


for check in (names_match, rest_is_told, buffers_are_merged, differences_are_named,
              adapters_are_merged_by_one_factor, trained_adapters_are_kept, moments_of_every_adam,
              rates, calls_after_close):
    check()
    print(f"{check.__name__}: passed")
