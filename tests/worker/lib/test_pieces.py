"""test_pieces.py - pieces of sharded tensors, and the end of an island whose rank fails.

Needs PyTorch. Two ranks on gloo hold parts of tensors. Pieces that are read are those of the whole
tensor, and pieces that are written reach each rank's part. With a PyTorch that has DTensor they are
DTensors of FSDP2's kind, else whole tensors.
"""
import doctest
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "worker/python"))

SHAPES = [(7,), (5, 3), (4, 3, 2), (1, 9), (3, 1, 2, 2), ()]


def cover():
    """Boxes of every range of every shape hold its elements in order."""
    import torch

    from thinwire import island

    for shape in SHAPES:
        numbers = torch.arange(float(torch.Size(shape).numel())).view(shape)
        place = island.held(numbers)
        for begin in range(numbers.numel()):
            for end in range(begin + 1, numbers.numel() + 1):
                piece = torch.full((end - begin,), -1.0)
                for there, here in island.meet(place, begin, piece, numbers):
                    there.copy_(here)
                assert piece.tolist() == list(range(begin, end)), (shape, begin, end, piece)
                cut = list(island.boxes(shape, begin, end))
                assert len(cut) <= max(1, 2 * len(shape) - 1), (shape, begin, end, cut)


class Trainer:
    """Tensors whose parts are on two ranks."""

    def __init__(self, tensors):
        from thinwire import island
        self.tensors, self.places, self.meet = tensors, [island.held(t) for t in tensors], \
            island.meet

    def local(self, tensor):
        """This rank's part."""
        whole = self.tensors[tensor]
        return whole.to_local() if hasattr(whole, "to_local") else whole

    def take(self, _array, tensor, begin, piece):
        """Implements LocalTrainer.take."""
        if self.places[tensor].is_owner:
            for there, here in self.meet(self.places[tensor], begin, piece, self.local(tensor)):
                there.copy_(here)

    def put(self, _array, tensor, begin, piece):
        """Implements LocalTrainer.put."""
        for there, here in self.meet(self.places[tensor], begin, piece, self.local(tensor)):
            here.copy_(there)


def sharded(shapes):
    """Tensors of the shapes, split over the ranks in different ways, and how they are split."""
    import torch
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        return [torch.arange(float(torch.Size(s).numel())).view(s) for s in shapes]
    mesh = init_device_mesh("cpu", (2,))
    # One side of a mesh of two sides has one rank: both ranks hold all of it.
    side = init_device_mesh("cpu", (1, 2), mesh_dim_names=("outer", "inner"))["outer"]
    ways = [(mesh, Shard(0)), (mesh, Shard(1)), (mesh, Shard(0)), (mesh, Replicate()),
            (side, Shard(0))]
    return [distribute_tensor(torch.arange(float(torch.Size(s).numel())).view(s), on, [way])
            for s, (on, way) in zip(shapes, ways)]


def rank(fails):
    """One of the ranks."""
    import torch
    import torch.distributed as dist

    from thinwire import island
    from thinwire.worker import ThinwireError

    dist.init_process_group("gloo")
    ranks = island.Ranks()
    if fails == "fails":
        if ranks.rank == 0:
            ranks.fail(ThinwireError("the daemon says no", -2))
        ranks.hear()
        return
    if fails == "dies":
        if ranks.rank == 1:
            raise ValueError("a callback of rank 1")
        ranks.say(island.WAIT)
        ranks.sum(1.0)
        return
    trainer = Trainer(sharded([(5, 3), (3, 4), (1, 4), (4,), (2, 3)]))
    trainer.places = island.choose_owners(ranks, trainer.places)
    for tensor, whole in enumerate(trainer.tensors):
        for begin, end in ((0, whole.numel()), (1, whole.numel()), (2, 4)):
            got = ranks.collect(trainer, (0, tensor, begin, end - begin))
            assert ranks.rank > 0 or got.tolist() == list(range(begin, end)), (tensor, got)
        given = torch.full((2,), 50.0) if ranks.rank == 0 else None
        ranks.spread(trainer, (0, tensor, 1, 2), given)
        got = ranks.collect(trainer, (0, tensor, 0, 4))
        assert ranks.rank > 0 or got.tolist() == [0, 50, 50, 3], (tensor, got)
    dist.destroy_process_group()


def spawn(fails):
    """Runs the two ranks. Returns their ends."""
    with tempfile.TemporaryDirectory(prefix="twpc") as folder:
        ends = []
        processes = []
        for number in range(2):
            code = (f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); "
                    f"import test_pieces, torch.distributed as d; i = d.init_process_group; "
                    f"d.init_process_group = lambda b: i(b, init_method='file://{folder}/s', "
                    f"rank={number}, world_size=2); test_pieces.rank({fails!r})")
            processes.append(subprocess.Popen([sys.executable, "-c", code], text=True,
                                              stderr=subprocess.PIPE))
        for process in processes:
            ends.append((process.communicate(timeout=100)[1], process.returncode))
        return ends


def main():
    """Runs the test."""
    if importlib.util.find_spec("torch") is None:
        print("this Python has no torch: skipped")
        sys.exit(77)
    from thinwire import island
    assert doctest.testmod(island).failed == 0
    cover()
    for text, code in spawn("works"):
        assert code == 0, text
    for text, code in spawn("fails"):
        assert code != 0 and "the daemon says no" in text, text
    (_, first), (second_text, second) = spawn("dies")
    assert first != 0 and second != 0 and "a callback of rank 1" in second_text, second_text


if __name__ == "__main__":
    main()
