"""Islands: the ranks of torch.distributed as one worker of one node.

Rank 0 alone has a thinwire.Worker. When the node reads or writes parameters, rank 0 says so to the
other ranks, and all of them take part:

    rank 0   step(): reduce the loss . [ say READ . collect ] ... say STEP
    others   step(): reduce the loss . [ hear READ . collect ] ... hear STEP

A boundary without a request thus costs one reduction and one broadcast of some numbers. They go
over gloo, so that no rank waits for its GPU. Parameters go over the ranks' own backend, a piece at
a time: each rank adds to a piece the elements that it holds, or takes those from it.
"""
from __future__ import annotations

import ctypes
import itertools
from typing import (Any, Callable, Iterator, NamedTuple, NoReturn, Optional, Protocol, Sequence,
                    TypeVar, Union)

import torch
import torch.distributed as dist

from . import _library as c
from .worker import Next, Run, ThinwireError, Trainer, Worker

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    HAS_DTENSOR = True
except ImportError:  # PyTorch before 2.5: all parameters are whole
    HAS_DTENSOR = False

OPEN_S = 10.0  # seconds between signs of life while rank 0 waits for its daemon
WAIT, STEP, OVER, READ, WRITE, HELDOUT, FAIL, CLOSED = range(8)
MESSAGE = 7    # numbers of a message: its kind, and up to six more

Sides = tuple[int, ...]
T = TypeVar("T")


class Held(NamedTuple):
    """The box of a tensor that a rank holds."""
    shape: Sides     # of the whole tensor
    offset: Sides
    sides: Sides
    is_owner: bool   # whether this rank adds the box to a piece, if others hold the same box
    is_whole: bool   # whether every rank holds the whole tensor


class LocalTrainer(Trainer, Protocol):
    """A trainer whose parameters may lie on several ranks."""

    parameters: Sequence[torch.Tensor]
    places: Sequence[Held]  # of each parameter; set again when the ranks have chosen the owners

    def gather_begins(self) -> None:
        """Puts the parameters where the next calls look for them."""

    def take(self, array: int, tensor: int, begin: int, piece: torch.Tensor) -> None:
        """Copies the elements of this rank to a flat piece that begins at element `begin`."""

    def put(self, array: int, tensor: int, begin: int, piece: torch.Tensor) -> None:
        """Copies the elements of this rank from the piece."""


def held(parameter: torch.Tensor) -> Held:
    """The box that this rank holds of a parameter."""
    shape = tuple(parameter.shape)
    if not HAS_DTENSOR or not isinstance(parameter, DTensor):
        return Held(shape, (0,) * len(shape), shape, True, True)
    mesh, placements = parameter.device_mesh, parameter.placements
    place = mesh.get_coordinate()
    if place is None:
        return Held(shape, (0,) * len(shape), (0,) * len(shape), False, False)
    sides, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    known = (Replicate, Shard)
    strange = [p for p in placements if not isinstance(p, known)
               and type(p).__name__ != "_StridedShard"]
    if strange or tuple(sides) != tuple(parameter.to_local().shape):
        raise ThinwireError(f"parameters with placements {placements} cannot be exchanged",
                            c.INVALID)
    return Held(shape, tuple(offset), tuple(sides), True, False)


def boxes(shape: Sides, begin: int, end: int) -> Iterator[tuple[Sides, Sides]]:
    """Cuts the elements [begin, end), counted row after row, into boxes in the same order.

    Gives the offset and the sides of each: at most 2 * len(shape) - 1 of them.

    >>> list(boxes((3, 4), 2, 9))
    [((0, 2), (1, 2)), ((1, 0), (1, 4)), ((2, 0), (1, 1))]
    """
    if begin >= end:
        return
    if not shape:
        yield (), ()
        return
    row = 1
    for side in shape[1:]:
        row *= side
    first, last = -(-begin // row), end // row  # whole rows
    if first > last:  # within one row
        for offset, sides in boxes(shape[1:], begin - last * row, end - last * row):
            yield (last, *offset), (1, *sides)
        return
    for offset, sides in boxes(shape[1:], begin - (first - 1) * row, row):
        if begin < first * row:
            yield (first - 1, *offset), (1, *sides)
    if first < last:
        yield (first, *(0 for _ in shape[1:])), (last - first, *shape[1:])
    for offset, sides in boxes(shape[1:], 0, end - last * row):
        yield (last, *offset), (1, *sides)


def meet(place: Held, begin: int, piece: torch.Tensor, local: torch.Tensor
         ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of views, of a flat piece and of the local tensor, that are the same elements."""
    at = 0
    for offset, sides in boxes(place.shape, begin, begin + piece.numel()):
        size = 1
        for side in sides:
            size *= side
        low = [max(a, b) for a, b in zip(offset, place.offset)]
        high = [min(a + n, b + m) for a, n, b, m in zip(offset, sides, place.offset, place.sides)]
        if all(x < y for x, y in zip(low, high)):
            there = tuple(slice(x - a, y - a) for x, y, a in zip(low, high, offset))
            here = tuple(slice(x - b, y - b) for x, y, b in zip(low, high, place.offset))
            yield piece[at:at + size].view(sides)[there], local[here]
        at += size


class Ranks:
    """Messages and pieces between the ranks of torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.control = dist.new_group(backend="gloo")
        is_gpu = "nccl" in str(dist.get_backend())
        self.device = torch.device("cuda", torch.cuda.current_device()) if is_gpu else \
            torch.device("cpu")

    def say(self, kind: int, *numbers: float) -> None:
        """Rank 0: a message to all others."""
        message = torch.zeros(MESSAGE, dtype=torch.float64)
        message[:1 + len(numbers)] = torch.tensor([kind, *numbers], dtype=torch.float64)
        dist.broadcast(message, 0, group=self.control)

    def hear(self) -> list[float]:
        """The others: the next message. Raises the error that rank 0 has met."""
        message = torch.zeros(MESSAGE, dtype=torch.float64)
        while True:
            dist.broadcast(message, 0, group=self.control)
            if int(message[0]) == FAIL:
                text, status = self.share(None)
                raise ThinwireError(text, status)
            if int(message[0]) != WAIT:
                return message.tolist()

    def share(self, thing: Any) -> Any:
        """Rank 0's thing, on every rank."""
        things = [thing]
        dist.broadcast_object_list(things, 0, group=self.control)
        return things[0]

    def fail(self, error: ThinwireError) -> NoReturn:
        """Rank 0: all ranks raise the error."""
        self.say(FAIL)
        self.share((str(error), error.status))
        raise error

    def sum(self, *numbers: float) -> list[float]:
        """Sums over the ranks, on every rank."""
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self.control)
        return total.tolist()

    def sum_first(self, *numbers: float) -> list[float]:
        """Sums over the ranks, on rank 0."""
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.reduce(total, 0, group=self.control)
        return total.tolist()

    def collect(self, trainer: LocalTrainer, order: Sequence[int]) -> torch.Tensor:
        """Makes a piece of all ranks' elements, on rank 0."""
        array, tensor, begin, count = order
        piece = torch.zeros(count, device=self.device)
        trainer.take(array, tensor, begin, piece)
        dist.reduce(piece, 0)
        return piece

    def spread(self, trainer: LocalTrainer, order: Sequence[int],
               given: Optional[torch.Tensor]) -> None:
        """Takes rank 0's piece into the parameters of all ranks."""
        array, tensor, begin, count = order
        piece = torch.empty(count, device=self.device) if given is None else given.to(self.device)
        dist.broadcast(piece, 0)
        trainer.put(array, tensor, begin, piece)


def choose_owners(ranks: Ranks, places: Sequence[Held]) -> list[Held]:
    """The places, with one owner for each box: the first of the ranks that hold it.

    The placements of a parameter do not tell which ranks hold copies: a mesh may have only some of
    the ranks, as where FSDP2 shards over one side of a mesh and tensor parallelism over the other.
    """
    mine = [(place.offset, place.sides) for place in places]
    found: list[Any] = [None] * ranks.size
    dist.all_gather_object(found, mine, group=ranks.control)
    firsts = [next(rank for rank in range(ranks.size) if found[rank][tensor] == box)
              for tensor, box in enumerate(mine)]
    return [place._replace(is_owner=first == ranks.rank) for place, first in zip(places, firsts)]


def check(ranks: Ranks, run: Run, places: Sequence[Held]) -> None:
    """Raises if an element of the run's tensors is owned by no rank, or by two."""
    owned = []
    for place in places:
        size = 1
        for side in place.sides:
            size *= side
        owned.append(float(size if place.is_owner else 0))
    faults = [tensor.name for tensor, count in zip(run.tensors, ranks.sum(*owned))
              if int(count) != tensor.elements]
    if faults:
        raise ThinwireError("the ranks together do not hold these parameters once: "
                            + ", ".join(faults[:5]), c.INVALID)


class _Leader:
    """Implements Trainer on rank 0, over the parameters of all ranks."""

    def __init__(self, ranks: Ranks, trainer: LocalTrainer, places: Sequence[Held]) -> None:
        self.ranks, self.trainer, self.places = ranks, trainer, places
        self.has_moments, self.evaluates = trainer.has_moments, trainer.evaluates
        self.engine = f"{trainer.engine}, {ranks.size} ranks"
        self.memory_bytes = getattr(trainer, "memory_bytes", 0)
        self.is_broken = False  # the others hear no more

    def _say(self, kind: int, *order: int) -> None:
        if self.is_broken:
            raise ThinwireError("this island has ended", c.TRAINER)
        self.ranks.say(kind, *order)

    def read(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Implements Trainer.read."""
        to = view(address, count)
        self.trainer.gather_begins()
        if self.places[tensor].is_whole:
            to.zero_()
            self.trainer.take(array, tensor, begin, to)
            return
        self._say(READ, array, tensor, begin, count)
        to.copy_(self.ranks.collect(self.trainer, (array, tensor, begin, count)))

    def write(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Implements Trainer.write."""
        self._say(WRITE, array, tensor, begin, count)
        self.trainer.gather_begins()
        self.ranks.spread(self.trainer, (array, tensor, begin, count), view(address, count))

    def heldout(self) -> float:
        """Implements Trainer.heldout: the mean of the ranks."""
        self._say(HELDOUT)
        return self.ranks.sum(self.trainer.heldout())[0] / self.ranks.size


def view(address: int, count: int) -> torch.Tensor:
    """`count` float32 numbers at an address, shared."""
    memory = (ctypes.c_float * count).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32)


def _tokens(address: int, count: int) -> torch.Tensor:
    memory = (ctypes.c_int32 * count).from_address(address)
    return torch.frombuffer(memory, dtype=torch.int32)


class IslandWorker:
    """A thinwire.Worker that all ranks hold together. Every rank makes the same calls.

    Rank 0 speaks to the daemon at `socket`. See Worker for the arguments and the functions.
    """

    def __init__(self, socket: Optional[str] = None, device: str = "PyTorch",
                 timeout: Optional[float] = None) -> None:
        self.ranks = Ranks()
        self.worker: Optional[Worker] = None  # rank 0
        self._leader: Optional[_Leader] = None
        self._trainer: Optional[LocalTrainer] = None
        self._is_open = True
        self._has_step = False
        if self.ranks.rank == 0:
            self._open(socket, f"{device}, {self.ranks.size} ranks", timeout)
        else:
            self.ranks.hear()
        self.run: Run = self.ranks.share(self.worker.run if self.worker is not None else None)

    def _open(self, socket: Optional[str], device: str, timeout: Optional[float]) -> None:
        for tries in itertools.count(1):
            left = OPEN_S if timeout is None else min(OPEN_S, timeout - (tries - 1) * OPEN_S)
            try:
                self.worker = Worker(socket, device, left)
                self.worker.on_wait = lambda: self.ranks.say(WAIT)
                self.ranks.say(STEP)
                return
            except TimeoutError as late:
                if timeout is not None and tries * OPEN_S >= timeout:
                    self.ranks.fail(ThinwireError(str(late), c.WAIT))
                self.ranks.say(WAIT)
            except ThinwireError as error:
                self.ranks.fail(error)

    def setting(self, key: str) -> Optional[str]:
        """As Worker.setting."""
        return self.ranks.share(self.worker.setting(key) if self.worker is not None else None)

    def start(self, trainer: LocalTrainer) -> None:
        """As Worker.start."""
        places = choose_owners(self.ranks, [held(parameter) for parameter in trainer.parameters])
        trainer.places = places
        check(self.ranks, self.run, places)
        self._trainer = trainer
        if self.worker is not None:
            self._leader = _Leader(self.ranks, trainer, places)
            self.worker.start(self._leader)

    def _obey(self) -> list[float]:
        """The others: serves rank 0's requests until it says something else."""
        trainer = self._trainer
        assert trainer is not None
        while True:
            kind, *numbers = self.ranks.hear()
            order = [int(number) for number in numbers[:4]]
            if kind == READ:
                trainer.gather_begins()
                self.ranks.collect(trainer, order)
            elif kind == WRITE:
                trainer.gather_begins()
                self.ranks.spread(trainer, order, None)
            elif kind == HELDOUT:
                self.ranks.sum(trainer.heldout())
            else:
                return [kind, *numbers]

    def _lead(self, loss: Optional[float], grad_norm: float, is_skipped: bool) -> Optional[Next]:
        """Rank 0: the boundary, and word of it to the others."""
        assert self.worker is not None and self._leader is not None
        try:
            following = self.worker.step(loss, grad_norm, is_skipped)
        except ThinwireError as error:
            self._leader.is_broken = True
            self.ranks.fail(error)
        except BaseException:
            self._leader.is_broken = True
            raise
        self.ranks.say(*((OVER,) if following is None else (STEP, *following)))
        return following

    def step(self, loss: Optional[float] = None, grad_norm: float = 0.0,
             is_skipped: bool = False) -> Optional[Next]:
        """As Worker.step. The loss and the norm are means over the ranks."""
        if self._has_step:
            total, norm, skipped = self.ranks.sum_first(
                float("nan") if loss is None else loss, grad_norm, is_skipped)
            size = self.ranks.size
            loss, grad_norm, is_skipped = total / size, norm / size, skipped > 0
        if self.worker is not None:
            following = self._lead(loss, grad_norm, is_skipped)
        else:
            kind, step, tokens, lr, lr_share, updates, is_restored = self._obey()
            following = None if kind != STEP else Next(int(step), int(tokens), lr, lr_share,
                                                       int(updates), bool(is_restored))
        self._has_step = following is not None
        return following

    def _tell(self, call: Any) -> int:
        """Rank 0's result of a call, an integer, on every rank."""
        if self.worker is None:
            return int(self.ranks.hear()[1])
        try:
            result = int(call(self.worker))
        except ThinwireError as error:
            self.ranks.fail(error)
        self.ranks.say(STEP, result)
        return result

    def draw(self, address: int) -> bool:
        """As Worker.draw. Every rank gets the whole batch."""
        if not self._tell(lambda worker: worker.draw(address)):
            return False
        dist.broadcast(_tokens(address, self.run.batch * (self.run.context + 1)), 0,
                       group=self.ranks.control)
        return True

    def heldout_count(self) -> int:
        """As Worker.heldout_count."""
        return self._tell(lambda worker: worker.heldout_count())

    def heldout_window(self, index: int, count: int, address: int) -> None:
        """As Worker.heldout_window. Every rank gets the window."""
        self._tell(lambda worker: worker.heldout_window(index, count, address) or 0)
        dist.broadcast(_tokens(address, self.run.context + 1), 0, group=self.ranks.control)

    def sample(self, prompt: str, text: str) -> None:
        """As Worker.sample. The text of rank 0 is shown."""
        if self.worker is not None:
            self.worker.sample(prompt, text)

    def abandon(self) -> None:
        """Detaches without the other ranks, after an error."""
        if self._leader is not None:
            self._leader.is_broken = True
        self._is_open = False
        if self.worker is not None:
            self.worker.close()

    def close(self) -> None:
        """As Worker.close, on all ranks."""
        if not self._is_open:
            return
        self._is_open = False
        if self.worker is None:
            if self._trainer is not None:
                self._obey()
            return
        self.worker.close()
        if self._leader is not None and not self._leader.is_broken:
            self.ranks.say(CLOSED)


AnyWorker = Union[Worker, IslandWorker]


def is_island() -> bool:
    """Whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def of_first_rank(make: Callable[[], T]) -> T:
    """The result of `make` on rank 0, on every rank; a ThinwireError of rank 0 is raised on all.

    Without ranks, `make` is just called.
    """
    if not is_island():
        return make()
    found: list[Any] = [None]
    failure: Optional[BaseException] = None
    if dist.get_rank() == 0:
        try:
            found = [(make(), None)]
        except BaseException as raised:  # pylint: disable=broad-except
            failure = raised
            found = [(None, (str(raised), getattr(raised, "status", c.FAILED)))]
    dist.broadcast_object_list(found, 0, group=dist.new_group(backend="gloo"))
    if failure is not None:
        raise failure
    thing, error = found[0]
    if error is not None:
        raise ThinwireError(*error)
    return thing
