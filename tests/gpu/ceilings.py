"""ceilings.py - the speeds that this card reaches piece by piece, by PyTorch: copies, the bus, the
products of a step, attention. Random data, medians, one line each."""
import statistics

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
torch.manual_seed(0)


def median_ms(work, count=10):
    times = []
    for i in range(count + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def copies():
    x = torch.randn(1 << 29, device=DEVICE)
    y = torch.empty_like(x)
    print(f"copy on the device {2 * x.numel() * 4 / median_ms(lambda: y.copy_(x)) / 1e9:.2f} TB/s")
    for name, is_pinned in (("pageable", False), ("pinned", True)):
        host = torch.empty(1 << 27, pin_memory=is_pinned).fill_(1)
        there = torch.empty(1 << 27, device=DEVICE)
        up = median_ms(lambda: there.copy_(host, non_blocking=True), 4)
        down = median_ms(lambda: host.copy_(there, non_blocking=True), 4)
        size = host.numel() * 4 / 1e6
        print(f"{name}: {size / up:.1f} GB/s to the device, {size / down:.1f} back")


def product(name, m, k, n, form="NN"):
    a = torch.randn((k, m) if form == "TN" else (m, k), device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn((n, k) if form == "NT" else (k, n), device=DEVICE, dtype=torch.bfloat16)
    a, b = a.t() if form == "TN" else a, b.t() if form == "NT" else b
    ms = median_ms(lambda: a @ b)
    print(f"{name} {form} ({m}, {k}, {n}) {ms:.3f} ms, {2 * m * k * n / ms / 1e9:.0f} TFLOP/s")


def products():
    rows, width = 32768, 768
    layers = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width),
              "down": (4 * width, width)}
    for name, (into, out) in layers.items():
        product(f"{name} forward", rows, into, out)
        product(f"{name} dx", rows, out, into, "NT")
        product(f"{name} dw", into, rows, out, "TN")
    product("head forward", 16384, width, 50304, "NT")
    product("head dx", 16384, 50304, width)
    product("head dw", 50304, 16384, width, "TN")
    product("square", 8192, 8192, 8192)


def attention(batch, heads, kv_heads, context, size):
    def random(count):
        return torch.randn(batch, count, context, size, device=DEVICE, dtype=torch.bfloat16,
                           requires_grad=True)

    q, k, v = random(heads), random(kv_heads), random(kv_heads)
    name = f"attention {(batch, heads, kv_heads, context, size)}"
    flops = 2 * batch * heads * context * (context + 1) * size
    for kind in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel([kind]):
                def forward():
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                   enable_gqa=heads != kv_heads)
                out = forward()
                gradient = torch.randn_like(out)
                there = median_ms(forward)
                back = median_ms(lambda: torch.autograd.grad(out, (q, k, v), gradient,
                                                             retain_graph=True))
            print(f"{name} {kind.name} forward {there:.3f} ms, {flops / there / 1e9:.0f} TFLOP/s, "
                  f"backward {back:.3f} ms, {2.5 * flops / back / 1e9:.0f}")
        except RuntimeError as error:
            print(f"{name} {kind.name}: {str(error).splitlines()[0][:90]}")


copies()
products()
for shape in ((32, 12, 12, 1024, 64), (4, 32, 8, 2048, 128), (1, 32, 8, 8192, 128)):
    attention(*shape)
