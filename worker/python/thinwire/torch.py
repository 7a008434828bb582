"""PyTorch modules as workers of a Thinwire node.

    import thinwire.torch

    node = thinwire.torch.create("bible", model, optimizer, tokens=20_000_000, step_tokens=4096)
    print(node.invite())    # a ticket: thinwire.torch.join("tw1...", model, optimizer) elsewhere
    while node.goes_on:
        loss = train_one_batch(model, optimizer, next(batches))
        node.step(loss)
    torch.save(model.state_dict(), "merged.pt")

`create` and `join` start a daemon of their own (home.py); `attach` uses one that runs.

The trainer stays the user's: model, data, loss, optimizer, devices. At each `step` the node may
copy parameters out, or put merged ones in. Encoding, merging and the network run on other threads
and in the daemon.
"""
from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from fnmatch import fnmatch
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NoReturn, Optional, Sequence, Union

import torch

from . import _library as c
from . import adapters, facts
from . import home as homes
from .island import AnyWorker, IslandWorker, held, is_island, meet, of_first_rank, view
from .progress import Progress
from .worker import Next, Run, ThinwireError, Worker

LOG = logging.getLogger("thinwire")
Loss = Union[float, torch.Tensor]

MOMENTS = {c.MOMENT1: "exp_avg", c.MOMENT2: "exp_avg_sq"}
WRAPPERS = ("module.", "_orig_mod.")  # DistributedDataParallel, torch.compile
CLOSE_S = 30.0  # for which `close` waits for a call of another thread
STEP_TOKENS = 1024  # as which a step counts, where `create` is not told
CONTEXT_MAX, BATCH_MAX = 131072, 65536  # of a manifest


def _number(x: Loss) -> float:
    if hasattr(x, "full_tensor"):  # a DTensor, such as FSDP2's norm of the gradient
        x = x.full_tensor()
    return float(x.detach()) if isinstance(x, torch.Tensor) else float(x)


def _plain_optimizer(optimizer: Optional[torch.optim.Optimizer]
                     ) -> Optional[torch.optim.Optimizer]:
    """The optimizer within the wrappers of Accelerate and Lightning, which hide its class."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = getattr(optimizer, "optimizer")
    return optimizer


def _plain_name(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    if name.startswith("base_model.model."):  # peft: its files leave out the adapter's name
        name = (name + ".").replace(".default.", ".")[:-1]
    return name


def _parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters by name. A tied one has several names, and files may hold any of them."""
    named = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module.named_parameters(recurse=False):
            named[_plain_name(f"{prefix}.{name}" if prefix else name)] = parameter
    return named


def _ties(model: torch.nn.Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in _parameters(model).items():
        names.setdefault(id(parameter), []).append(name)
    return sorted(sorted(same) for same in names.values() if len(same) > 1)


def _all_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The floating-point buffers that a state_dict has."""
    named = {}
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point() and buffer.numel() > 0 and \
                    name not in module._non_persistent_buffers_set:
                named[_plain_name(f"{prefix}.{name}" if prefix else name)] = buffer
    return named


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that can be merged, such as BatchNorm's statistics."""
    named = _all_buffers(model)
    if not adapters.is_adapted(model):
        return named
    changing = adapters.statistics(model)
    return {name: buffer for name, buffer in named.items() if id(buffer) in changing}


def _facts(model: torch.nn.Module) -> tuple[facts.Facts, list[str]]:
    """The facts of a model that must not differ between nodes, and its frozen parameters' names."""
    named = [(_plain_name(name), parameter) for name, parameter in model.named_parameters()]
    merged = _buffers(model)
    frozen: list[tuple[str, torch.Tensor]] = [pair for pair in named if not pair[1].requires_grad]
    frozen += [pair for pair in _all_buffers(model).items() if pair[0] not in merged]
    trained = [pair for pair in named if pair[1].requires_grad]
    return facts.of(trained, frozen, _ties(model)), [name for name, _ in frozen]


def _compare(base: Optional[str], model: torch.nn.Module, run: str) -> None:
    """Raises if this model differs from the model with which the run was created."""
    theirs = facts.read(base)
    if theirs is None:  # a run of `thinwire run new`, which has no facts of a module
        return
    mine, frozen = _facts(model)
    if mine.types != theirs.types:
        LOG.warning("the parameters of this model have other types than those of the node that "
                    "made run %s: bfloat16 keeps 8 bits of each merge", run)
    faults = facts.differences(mine, theirs, frozen, _ties(model))
    if faults:
        raise ThinwireError(f"this model is not that of the node that made run {run}: "
                            + "; ".join(faults) + ". Make the model in the same way, and load the "
                            + ("same base model" if adapters.is_adapted(model) else
                               "same weights") + " before", c.INVALID)


def _fix_adapters(model: torch.nn.Module, run: str) -> None:
    """Leaves one factor of each LoRA adapter to be trained, and makes the other that of the run."""
    if not adapters.is_adapted(model):
        return
    if is_island():
        raise ThinwireError("a LoRA adapter on several ranks has both factors trained: create the "
                            'run with lora="AB"', c.INVALID)
    adapters.fix(model, run, _plain_name)


def _adapters_line(run: Run, model: torch.nn.Module) -> str:
    whole = sum(p.numel() for p in model.parameters())
    return (f"LoRA: {run.parameters:,} of {whole:,} parameters are sent; " + (
        "both factors are merged apart" if any(
            pair.random.requires_grad for pair in adapters.pairs(model)) else
        "lora_B is merged, and lora_A is the same on all nodes"))


def _fix_adapters_of(run: Run, model: torch.nn.Module) -> None:
    """The same, where the run has but one factor of each adapter."""
    names = [tensor.name for tensor in run.tensors]
    for random, zero in adapters.FACTORS:
        if any(f".{zero}" in name for name in names) and \
                not any(f".{random}" in name for name in names):
            _fix_adapters(model, run.name)
            return


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape in a run: one to four dimensions. A scalar of PyTorch has none, and a weight of
    Conv3d has five."""
    return (*shape[:3], math.prod(shape[3:])) if len(shape) > 4 else tuple(shape) or (1,)


def _match(run: Run, model: torch.nn.Module) -> list[torch.Tensor]:
    """The parameter or buffer of each tensor of the run, by name: its whole name, or else the one
    name that ends with it ("transformer.wte.weight" for "wte.weight")."""
    named: dict[str, torch.Tensor] = {**_buffers(model), **_parameters(model)}
    buffers = {_plain_name(name) for name, _ in model.named_buffers()}
    chosen: list[torch.Tensor] = []
    taken: dict[int, str] = {}  # name of the tensor by the parameter that it is
    faults = []
    for tensor in run.tensors:
        names = [tensor.name] if tensor.name in named else \
            [name for name in named if name.endswith("." + tensor.name)]
        if len({id(named[name]) for name in names}) != 1:
            faults.append(f"{tensor.name}: " + (
                f"{len(names)} parameters have this name" if names else
                "a buffer, which is not merged: make the run with --frozen " + tensor.name
                if tensor.name in buffers else "the model has no such parameter"))
            continue
        parameter = named[names[0]]
        if _shape(parameter.shape) != _shape(tensor.shape):
            faults.append(f"{tensor.name}: shape {tuple(parameter.shape)} in the model, "
                          f"{tensor.shape} in the run")
        if id(parameter) in taken:
            faults.append(f"{tensor.name}: tied to {taken[id(parameter)]} in the model: make the "
                          f"run with --frozen {tensor.name}")
        taken[id(parameter)] = tensor.name
        chosen.append(parameter)
    if not faults:
        return chosen
    shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
    raise ThinwireError(f"the model is not that of run {run.name}: {shown}", c.INVALID)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _warn_of_rest(model: torch.nn.Module, chosen: Sequence[torch.Tensor]) -> None:
    """Says which parts of the model no merge makes equal, because the run does not have them."""
    merged = {id(parameter) for parameter in chosen}
    rest = {id(p): (name, p) for name, p in _parameters(model).items() if id(p) not in merged}
    trained = [name for name, p in rest.values() if p.requires_grad]
    frozen = [name for name, p in rest.values() if not p.requires_grad]
    statistics = [_plain_name(f"{prefix}.{name}" if prefix else name)
                  for prefix, module in model.named_modules()
                  if getattr(module, "track_running_stats", False)
                  for name, buffer in module.named_buffers(recurse=False)
                  if buffer.is_floating_point() and id(buffer) not in merged]
    if trained:
        LOG.warning("the run does not have %s: each node trains its own, and the merged model "
                    "holds one node's", _some(trained))
    if statistics:
        LOG.warning("running statistics are not merged (%s): each node has those of its own data; "
                    "a layer without them, such as LayerNorm or GroupNorm, has none to lose",
                    _some(statistics))
    if frozen:
        LOG.info("frozen, so not merged: %s; all nodes must load the same", _some(frozen))


class _Module:
    """Implements thinwire.worker.Trainer over a module's parameters."""

    def __init__(self, parameters: Sequence[torch.Tensor],
                 optimizer: Optional[torch.optim.Optimizer], model: torch.nn.Module) -> None:
        self.parameters = parameters
        self.places = [held(parameter) for parameter in parameters]
        variances = {id(module.running_var) for module in model.modules()
                     if isinstance(getattr(module, "running_var", None), torch.Tensor)}
        self.variances = {i for i, p in enumerate(parameters) if id(p) in variances}
        self.sharded = [module for module in model.modules() if hasattr(module, "reshard")]
        self.optimizer = optimizer
        self.measure: Optional[Callable[[], Loss]] = None  # held-out loss
        self.has_moments = isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW))
        self.groups: dict[int, dict[str, Any]] = {
            id(parameter): group for group in (optimizer.param_groups if optimizer else ())
            for parameter in group["params"]}
        self.memory_bytes = sum(p.numel() * p.element_size() for p in parameters)
        devices = sorted({str(p.device) for p in parameters})
        types = sorted({str(p.dtype).replace("torch.", "") for p in parameters})
        self.engine = f"PyTorch {torch.__version__}, {', '.join(devices)}, {', '.join(types)}"

    def _local(self, array: int, tensor: int, makes: bool) -> Optional[torch.Tensor]:
        """This rank's part of an array's tensor; None: there is none, which counts as zeros."""
        parameter = self.parameters[tensor]
        numbers: Optional[torch.Tensor] = parameter.data
        if array != c.PARAMETERS:
            if id(parameter) not in self.groups:
                return None  # a buffer, or a parameter of another optimizer
            assert self.optimizer is not None
            state = self.optimizer.state[parameter]
            if MOMENTS[array] not in state and makes:
                self._make_state(parameter, state)
            numbers = state.get(MOMENTS[array])
        return numbers.to_local() if hasattr(numbers, "to_local") else numbers

    def _make_state(self, parameter: torch.nn.Parameter, state: dict[str, Any]) -> None:
        """Makes the state that Adam makes of a parameter at its first step."""
        group = self.groups[id(parameter)]
        is_there = group.get("capturable") or group.get("fused")
        state.setdefault("step", torch.zeros((), dtype=torch.float32,
                                             device=parameter.device if is_there else None))
        names = list(MOMENTS.values()) + (["max_exp_avg_sq"] if group.get("amsgrad") else [])
        for name in names:
            state.setdefault(name, torch.zeros_like(
                parameter, memory_format=torch.preserve_format))

    def gather_begins(self) -> None:
        """Frees FSDP2's gathered parameters, which an evaluation leaves: they would hide writes."""
        for module in self.sharded:
            module.reshard()

    @torch.no_grad()
    def take(self, array: int, tensor: int, begin: int, piece: torch.Tensor) -> None:
        """Implements LocalTrainer.take."""
        local, place = self._local(array, tensor, False), self.places[tensor]
        if local is not None and place.is_owner:
            for there, here in meet(place, begin, piece, local):
                there.copy_(here)

    @torch.no_grad()
    def put(self, array: int, tensor: int, begin: int, piece: torch.Tensor) -> None:
        """Implements LocalTrainer.put."""
        local = self._local(array, tensor, True)
        if local is None:
            return
        for there, here in meet(self.places[tensor], begin, piece, local):
            here.copy_(there)
            if tensor in self.variances:  # the outer step may overshoot
                here.clamp_(min=0)

    def read(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Implements Trainer.read."""
        to = view(address, count)
        if self._local(array, tensor, False) is None:
            to.zero_()
        self.take(array, tensor, begin, to)

    def write(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Implements Trainer.write."""
        self.put(array, tensor, begin, view(address, count))

    @property
    def evaluates(self) -> bool:
        """Implements Trainer.evaluates."""
        return self.measure is not None

    def heldout(self) -> float:
        """Implements Trainer.heldout."""
        assert self.measure is not None
        return _number(self.measure())

    def set_updates(self, updates: int) -> None:
        """Counts the optimizer's steps anew, after its moments were put in place."""
        if not self.has_moments or self.optimizer is None:
            return
        for parameter in self.parameters:
            if id(parameter) not in self.groups:
                continue
            state = self.optimizer.state[parameter]
            if updates == 0:
                state.clear()
            elif torch.is_tensor(state.get("step")):
                state["step"].fill_(float(updates))
            elif "step" in state:
                state["step"] = updates


class Node:
    """A model that trains as part of a run. Made by `create`, `join` and `attach`.

    One thread at a time may use it, in the process that made it. A context manager, which closes.
    """

    def __init__(self, worker: AnyWorker, module: _Module, model: torch.nn.Module,
                 sets_lr: bool) -> None:
        self.worker = worker
        self.model = model
        self.run: Run = worker.run
        self.next: Optional[Next] = None  # None: the run is over
        self.home: Optional[homes.Home] = None  # of `create` and `join`, on rank 0
        self._pid = os.getpid()
        self._is_closed = False
        self._busy = threading.Lock()  # held during a call
        self._caller: Optional[int] = None  # the thread that holds it
        self._progress: Optional[Progress] = None
        self._module = module
        self._shares: Optional[list[float]] = None
        if sets_lr and module.optimizer is not None:
            rates = [group.get("initial_lr", group["lr"])
                     for group in module.optimizer.param_groups]
            self._shares = [rate / max(rates) for rate in rates] if max(rates) > 0 else None
            LOG.warning("learning rate: the run's, at most %s by schedule %s, in place of the "
                        "optimizer's %.6g", worker.setting("train.lr"),
                        worker.setting("train.schedule"), max(rates))

    @property
    def goes_on(self) -> bool:
        """Whether a step is to be taken."""
        return self.next is not None

    @property
    def step_count(self) -> int:
        """Steps that this node has taken."""
        return self.next.step if self.next is not None else 0

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ThinwireError(
                f"this node is of process {self._pid}, and this is a process that it has forked "
                f"({os.getpid()}), such as a worker of a DataLoader: use the node in the process "
                "that made it", c.INVALID)

    @contextmanager
    def _call(self, wait_s: float = 0.0, is_reading: bool = False) -> Iterator[None]:
        """A call of this node: in its process, before `close`, and no two at a time, but for one
        that reads, by the function `heldout` within a step."""
        self._check_process()
        if self._is_closed:
            raise ThinwireError("this node is closed: attach, create or join again to go on",
                                c.INVALID)
        is_within = self._caller == threading.get_ident()
        if is_within and is_reading:
            yield
            return
        if is_within or not self._busy.acquire(timeout=wait_s):
            raise ThinwireError(
                "this node is in another call" + (
                    ", from which this one was made" if is_within else " of another thread") +
                ": call it from one thread, one call after the other", c.INVALID)
        try:
            self._caller = threading.get_ident()
            yield
        finally:
            self._caller = None
            self._busy.release()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a node cannot be sent to another process: use it in the process that "
                        "made it, and keep it out of datasets and callbacks that are copied")

    def _follow(self, following: Optional[Next]) -> bool:
        self.next = following
        optimizer = self._module.optimizer
        if following is None:
            return False
        if following.is_restored:
            self._module.set_updates(following.updates)
        if self._shares is not None and optimizer is not None:
            for group, share in zip(optimizer.param_groups, self._shares):
                group["lr"] = following.lr * share
        return True

    def step(self, loss: Loss, grad_norm: Loss = 0.0) -> bool:
        """A step boundary, after each step of the optimizer.

        loss       mean of the batch, in nats per token
        grad_norm  norm of the gradient, as clip_grad_norm_ returns it; shown to people

        Returns whether to go on: False when the run is over, and the model then holds the run's
        result. Waits while the node is paused. Raises ThinwireError.
        """
        with self._call():
            number, norm = _number(loss), _number(grad_norm)
            goes_on = self._follow(self.worker.step(number, norm, not math.isfinite(number)))
        if self._progress is not None and goes_on:
            self._progress.show(self.step_count, number)
        return goes_on

    def invite(self, uses: int = 1, expires: str = "24h", address: Optional[str] = None) -> str:
        """A ticket, which lets another machine into the run: give it to `join` there.

        uses     number of machines that it lets in
        expires  time until it ends, such as "30m" or "7d"
        address  host:port at which others reach this node; None: its addresses as it knows them

        Who has the ticket can use it: send it like a password. Only for nodes of `create` and
        `join`; for others `thinwire invite` does the same.
        """
        if self.home is None:
            raise ThinwireError("this node has a daemon that you started: `thinwire invite` makes "
                                "a ticket there" if not is_island() else
                                "rank 0 makes the tickets", c.INVALID)
        self._check_process()
        return self.home.invite(uses, expires, address)

    def draw(self) -> torch.Tensor:
        """The node's next batch of the run's data: (batch, context + 1) token numbers.

        Inputs are [:, :-1], targets [:, 1:]. Waits for data that a new node still fetches.
        """
        tokens = torch.empty(self.run.batch, self.run.context + 1, dtype=torch.int32)
        with self._call(is_reading=True):
            while not self.worker.draw(tokens.data_ptr()):
                time.sleep(0.5)
        return tokens.long()

    def batches(self) -> Iterator[torch.Tensor]:
        """Batches of the run's data as long as the run goes on. Call `step` after each."""
        while self.goes_on:
            yield self.draw()

    def heldout_windows(self, count: Optional[int] = None) -> torch.Tensor:
        """Held-out windows of the run's data, always the same: (count, context + 1).

        None: as many as thinwire-worker evaluates. Fewer where there are not so many; none while
        no held-out data have arrived.
        """
        with self._call(is_reading=True):
            wanted = min(count or self.run.heldout_windows, self.worker.heldout_count())
            windows = torch.empty(wanted, self.run.context + 1, dtype=torch.int32)
            for index, row in enumerate(windows):
                self.worker.heldout_window(index, wanted, row.data_ptr())
        return windows.long()

    def sample(self, prompt: str, text: str) -> None:
        """Shows a text that the model wrote after a prompt in `thinwire status` and on the page.

        It is shown after the next evaluation; call it from `heldout`, say. In an island the text
        of rank 0 counts.
        """
        with self._call(is_reading=True):
            self.worker.sample(prompt, text)

    def _end(self, leave: Callable[[], None]) -> None:
        self._check_process()
        if self._is_closed:
            return
        with self._call(CLOSE_S):
            self._is_closed = True
            if self._progress is not None:
                self._progress.close()
            try:
                leave()
            finally:
                if self.home is not None:
                    self.home.stop()

    def close(self) -> None:
        """Takes a snapshot and detaches. A daemon of `create` or `join` saves the model and ends,
        unless it is kept. May be called again."""
        self._end(self.worker.close)

    def abandon(self) -> None:
        """Detaches after an error of the trainer. May be called again."""
        self._end(self.worker.abandon)

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if os.getpid() != self._pid:
            return  # a forked process leaves the block too: the node is not its own
        # ranks of an island that failed cannot be waited for
        self._end(self.worker.close if kind is None else self.worker.abandon)


def open(socket: Optional[str] = None,  # pylint: disable=redefined-builtin
         timeout: Optional[float] = None) -> AnyWorker:
    """Opens a worker before the model is made, to make it as `run` says.

    Where torch.distributed has several ranks, each calls it, and they are one worker. The
    arguments are those of `attach`.
    """
    device = f"PyTorch {torch.__version__}"
    return (IslandWorker if is_island() else Worker)(socket, device, timeout)


def attach(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, *,
           heldout: Optional[Callable[["Node"], Loss]] = None, lr: str = "own",
           worker: Optional[AnyWorker] = None, socket: Optional[str] = None,
           timeout: Optional[float] = None) -> Node:
    """Makes a module the worker of the node whose daemon listens at `socket`.

    model      its parameters are matched with the run's tensors by name and shape. They may be on
               any device, in float32 or bfloat16. In bfloat16 a merge is rounded to 8 bits each
               time it is put in place, so that small changes can be lost: keep float32 parameters
               and compute under autocast where you can.
    optimizer  any, also in the wrappers of Accelerate and Lightning. Moments of Adam and AdamW
               follow the node's snapshots, and merges may lead them (sync.lead). Other optimizers
               begin anew after a restart, and so does a second one beside it.
    heldout    given the node, returns the loss of the model on held-out data, in nats per token.
               It is called at step boundaries, also with the anchor in place of the parameters.
               Without it the node cannot warn of merges that hurt.
    lr         "own": the optimizer's rates and their scheduler are the script's own.
               "run": the rates follow the run's schedule (train.lr, train.schedule), each group in
               the ratio that it has now; both rates are logged. Remove the script's scheduler.
    worker     of thinwire.torch.open, called before the model was made, for its `run`; the node
               owns it. None: one is opened, with the next two
    socket     None: $THINWIRE_WORKER_SOCKET, else /run/thinwire/worker.sock
    timeout    seconds to wait for the daemon; None: without limit

    Where torch.distributed has several ranks, they are one worker, an island: each rank calls
    `attach`, `step` and `close`, and rank 0 speaks to the daemon. Parameters may be replicated
    (DDP) or DTensors (FSDP2, HSDP, tensor parallelism). `heldout` is called on all ranks, and
    losses are means over them. When a rank dies, torchrun starts all anew, and they go on from the
    node's snapshot.

    Returns when parameters are in place from which to go on: the run's first weights, or those of
    the node's newest snapshot. Raises TimeoutError, ThinwireError.
    """
    if lr not in ("run", "own"):
        raise ValueError(f'lr is "run" or "own", not {lr!r}')
    if worker is None:
        worker = open(socket, timeout)
    elif is_island() and not isinstance(worker, IslandWorker):
        raise ValueError("the ranks of an island open their worker with thinwire.torch.open")
    try:
        _fix_adapters_of(worker.run, model)
        _compare(worker.setting("model.base"), model, worker.run.name)
        parameters = _match(worker.run, model)
        _warn_of_rest(model, parameters)
        module = _Module(parameters, _plain_optimizer(optimizer), model)
        node = Node(worker, module, model, lr == "run")
        if heldout is not None:
            module.measure = lambda: heldout(node)
        worker.start(module)
        node._follow(worker.step())  # pylint: disable=protected-access
    except BaseException:
        worker.abandon()
        raise
    return node


def _shapes(model: torch.nn.Module, local: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each trained parameter and merged buffer: the tensors of a run of this
    model."""
    found = [(_plain_name(name), _shape(parameter.shape))
             for name, parameter in model.named_parameters()
             if parameter.requires_grad and parameter.numel() > 0]
    if not found:
        raise ThinwireError("the model has no parameter to train: none has requires_grad",
                            c.INVALID)
    found += [(name, _shape(buffer.shape)) for name, buffer in _buffers(model).items()
              if not any(fnmatch(name, pattern) for pattern in local)]
    return found


def _sides(step_tokens: int) -> tuple[int, int]:
    """Batch and context of a manifest whose product is the number of tokens of a step."""
    for context in range(min(step_tokens, CONTEXT_MAX), 1, -1):
        if step_tokens % context == 0 and step_tokens // context <= BATCH_MAX:
            return step_tokens // context, context
    raise ThinwireError(f"step_tokens={step_tokens:,} is not a batch of at most {BATCH_MAX:,} rows "
                        f"of 2 to {CONTEXT_MAX:,} tokens: give a number near it", c.INVALID)


def _attach_home(found: Callable[[], tuple[homes.Home, bool]], keep: bool, model: torch.nn.Module,
                 optimizer: Optional[torch.optim.Optimizer], progress: Optional[bool],
                 check: Callable[[Run, bool], None], options: dict[str, Any]) -> Node:
    """Starts the daemon of a home, on rank 0, and attaches to it. `check` sees the run, and whether
    the home is new."""
    mine: list[homes.Home] = []

    def begin() -> tuple[str, str, bool]:
        home, is_new = found()
        mine.append(home)
        home.start(keep)
        return home.worker_socket, str(home.config), is_new

    try:
        socket, config, is_new = of_first_rank(begin)
        worker = open(socket, options.pop("timeout"))
        try:
            check(worker.run, is_new)
        except BaseException:
            worker.abandon()
            raise
        node = attach(model, optimizer, worker=worker, **options)
    except BaseException:
        for home in mine:
            home.stop()
        raise
    if not mine:
        return node
    node.home = mine[0]
    if progress if progress is not None else homes.is_terminal():
        node._progress = Progress(node.home.status)  # pylint: disable=protected-access
        print(f"thinwire: run {node.run.name}, {node.run.parameters:,} parameters, "
              f"{node.run.tokens_per_step:,} tokens a step; `thinwire --config {config} status` "
              "tells more", file=sys.stderr)
        if adapters.is_adapted(model):
            print(f"thinwire: {_adapters_line(node.run, model)}", file=sys.stderr)
    if not node.goes_on:
        LOG.warning("run %s is over: the model has its result; another name begins another run",
                    node.run.name)
    return node


def create(name: str, model: torch.nn.Module,
           optimizer: Optional[torch.optim.Optimizer] = None, *, tokens: int,
           step_tokens: Optional[int] = None, nodes: Optional[int] = None,
           preset: Optional[str] = None, settings: Optional[dict[str, Any]] = None,
           local_buffers: Sequence[str] = (), heldout: Optional[Callable[[Node], Loss]] = None,
           lr: str = "own", lora: str = "B", keep: bool = False,
           folder: Optional[homes.Names] = None,
           listen: Optional[str] = None, upload: Optional[str] = None,
           progress: Optional[bool] = None, timeout: Optional[float] = None) -> Node:
    """Makes a run of this model, and its first node; or goes on with the run of this name.

    name         of the run: 1 to 63 of a-z, 0-9 and -
    model        all its parameters with requires_grad are trained and merged. The floating-point
                 buffers of its state_dict, such as BatchNorm's statistics, are merged too. Frozen
                 parameters and tied names must be those of this model on all nodes: `join` and
                 `create` name those that differ
    local_buffers  patterns of buffers that each node keeps for itself, such as ["*.running_*"]
    tokens       budget of the run, over all nodes: it ends there
    step_tokens  as which one step of one node counts: rows times length of its batch. None: 1024
    nodes        number planned, to which the times of merging are fitted; None: 4
    preset       how nodes merge (`thinwire run presets`); None: as `run new` takes
    settings     more keys of the manifest, such as {"sync.period": 50} (`thinwire run keys`)
    lora         of adapters of peft. "B": lora_B is trained and merged, and lora_A is the same on
                 all nodes, so that the mean of the nodes is that of their adapters' products.
                 "AB": both are trained, and merged apart
    keep         leaves the daemon running at the end: it stays in the run, and `thinwire leave`
                 ends it. Else it ends with this process
    folder       of the node; None: NAME below $XDG_STATE_HOME/thinwire (~/.local/state/thinwire)
    listen       addresses for others to dial, as in the configuration; None: a free port from 4747
                 on, on all addresses; "": it only dials
    upload       cap of all links together, such as "5mbit"
    progress     a row with loss, anchor, peers and bytes on standard error; None: on a terminal

    The other arguments, and the errors, are those of `attach`. The settings of a run never change:
    for others, take another name.
    """
    if tokens <= 0 or (step_tokens is not None and step_tokens <= 1):
        raise ValueError("tokens and step_tokens are numbers of tokens, 2 at least")
    if lora not in ("B", "AB"):
        raise ValueError(f'lora is "B" or "AB", not {lora!r}')
    batch, context = _sides(step_tokens or STEP_TOKENS)
    if lora == "B":
        _fix_adapters(model, name)
    wanted = {"train.batch": batch, "model.context": context, "train.tokens": tokens,
              "sync.nodes": nodes, "sync.preset": preset, "model.base": _facts(model)[0].base(),
              **(settings or {})}
    chosen = {key: str(value) for key, value in wanted.items() if value is not None}
    shapes = _shapes(model, local_buffers)

    def check(run: Run, is_new: bool) -> None:
        if step_tokens is None and (is_new or run.tokens_per_step == STEP_TOKENS):
            LOG.warning("a step counts as %d tokens: step_tokens= says how many it has",
                        STEP_TOKENS)
        step = run.tokens_per_step if step_tokens is None else step_tokens
        if (run.tokens, run.tokens_per_step) != (tokens, step):
            raise ThinwireError(
                f"run {run.name} was made with tokens={run.tokens:,} and "
                f"step_tokens={run.tokens_per_step:,}, which never change: take these, or another "
                "name for another run", c.INVALID)

    return _attach_home(
        lambda: homes.made(name, shapes, chosen, folder=folder,
                           node=homes.node_options(listen, upload, None)),
        keep, model, optimizer, progress, check,
        {"heldout": heldout, "lr": lr, "timeout": timeout})


def join(ticket: str, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, *,
         heldout: Optional[Callable[[Node], Loss]] = None, lr: str = "own", keep: bool = False,
         folder: Optional[homes.Names] = None, listen: Optional[str] = None,
         upload: Optional[str] = None, progress: Optional[bool] = None,
         timeout: Optional[float] = None) -> Node:
    """Makes this process a node of the run to which the ticket of `Node.invite` belongs.

    The same call goes on with the same node later, also when the ticket has ended. The model has
    the parameters of the run's model; those of the run are put in place. The arguments are those of
    `create`, and the errors too.
    """
    return _attach_home(
        lambda: homes.joined(ticket, folder=folder,
                             node=homes.node_options(listen, upload, None)),
        keep, model, optimizer, progress, lambda run, is_new: None,
        {"heldout": heldout, "lr": lr, "timeout": timeout})


def begin(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer],
          options: dict[str, Any]) -> Node:
    """A node for a callback, by its options: those of `create` with the name as "create", those of
    `join` with the ticket as "join", or else those of `attach`."""
    rest = dict(options)
    name, ticket = rest.pop("create", None), rest.pop("join", None)
    if name is not None and ticket is not None:
        raise ValueError("a callback creates a run or joins one: give one of create and join")
    if name is not None:
        return create(name, model, optimizer, **rest)
    if ticket is not None:
        return join(ticket, model, optimizer, **rest)
    return attach(model, optimizer, **rest)
