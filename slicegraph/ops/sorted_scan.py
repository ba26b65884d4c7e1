"""Slice attention in plain torch: sums over sorted keys as scans, without a tensor of all pairs.

Values are `[..., N, H, D]`, the numbers that the D channels of a head share are `[..., N, H, 1]`.
Scans run along the rows, dimension -3.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.ops.layout import OptTensor, set_of_row

Scan = Callable[[Tensor, Tensor, bool], Tensor]


def log_step_scan(x: Tensor, decay: Tensor, reverse: bool) -> Tensor:
    """`y[j] = x[j] + decay[j] y[j - 1]` in log2(N) steps; if `reverse`, with `y[j + 1]`.

    A decay of 0 cuts off all rows before it, even if they are infinite or NaN.
    """
    step = -1 if reverse else 1
    while abs(step) < x.shape[-3]:
        x = x + torch.where(decay == 0, 0, decay * _shift(x, step))
        decay = torch.where(decay == 0, 0, decay * _shift(decay, step))
        step *= 2
    return x


def _shift(x: Tensor, step: int) -> Tensor:
    """`y[j] = x[j - step]` along the rows, with zeros where there is none."""
    if step < 0:
        return functional.pad(x[..., -step:, :, :], (0, 0, 0, 0, 0, -step))
    return functional.pad(x[..., : x.shape[-3] - step, :, :], (0, 0, 0, 0, step, 0))


class SortedSlices:
    """The queries, keys and values of slice attention in the order of the keys.

    Without `q`, the queries are the keys, each at its place in the order. A channel of ones is
    added to the values: its sums are those of the weights.
    """

    def __init__(
        self,
        inputs: tuple[Tensor, Tensor, OptTensor, Tensor],
        *,
        order: Tensor,
        lengths: OptTensor,
        ptr: OptTensor,
        scan: Scan = log_step_scan,
    ) -> None:
        v, k, q = (None if x is None else x.to(_accumulator(x)) for x in inputs[:3])
        assert v is not None
        assert k is not None
        self.dtype, self.key_dtype = inputs[0].dtype, inputs[1].dtype
        self.shared, self.scan = q is None, scan
        row = torch.arange(k.shape[-2], device=k.device).unsqueeze(-1)
        start, end = _bounds(k, lengths, ptr)
        last, is_first, real = (end - 1).clamp(min=0), row == start, row < end
        self.rows = order.long() + start
        self.sizes = (end - start).clamp(min=1).unsqueeze(-1)
        self.real, self.last = real.unsqueeze(-1), last.expand(k.shape)
        keys = k.gather(-2, self.rows)
        gap = torch.where(is_first | ~real, 0, keys - keys.roll(1, -2))
        self.q, self.keys, self.gap = k if q is None else q, keys, gap.unsqueeze(-1)
        self.origin = keys.gather(-2, start.expand(k.shape))
        self.tau = inputs[3].unsqueeze(-1)
        carry = torch.where(is_first, 0.0, 1.0).to(k.dtype)
        self.carry = carry.expand(k.shape).unsqueeze(-1)
        v = torch.where(self.real, self.take(self.split(v), self.rows), 0)
        self.v = torch.cat([v, self.real.to(v.dtype).expand(*v.shape[:-1], 1)], -1)

        if q is None:
            place = torch.zeros_like(self.rows).scatter(-2, self.rows, row.expand(k.shape))
        else:
            place = _search(keys, q, start, end)
        # Of each query, the nearest keys below and above, and the distances to them.
        self.below, self.above = torch.maximum(place, start), torch.minimum(place + 1, last)
        has_below, has_above = (place >= start) & real, (place + 1 < end) & real
        self.has_below, self.has_above = has_below.unsqueeze(-1), has_above.unsqueeze(-1)
        to_below, to_above = (
            self.q - keys.gather(-2, self.below),
            keys.gather(-2, self.above) - self.q,
        )
        self.to_below = torch.where(has_below, to_below, 0).unsqueeze(-1)
        self.to_above = torch.where(has_above, to_above, 0).unsqueeze(-1)

    def split(self, x: Tensor) -> Tensor:
        """`[..., N, H * D]` to `[..., N, H, D]`."""
        heads = self.keys.shape[-1]
        return x.to(_accumulator(x)).unflatten(-1, (heads, x.shape[-1] // heads))

    @staticmethod
    def take(x: Tensor, rows: Tensor) -> Tensor:
        """`x[rows[i, h], h]`"""
        return x.gather(-3, rows.unsqueeze(-1).expand(*rows.shape, x.shape[-1]))

    @staticmethod
    def put(x: Tensor, rows: Tensor) -> Tensor:
        """`y[rows[i, h], h] += x[i, h]`, from zeros."""
        index = rows.unsqueeze(-1).expand(*rows.shape, x.shape[-1])
        return torch.zeros_like(x).scatter_add(-3, index, x)

    def laplace(self) -> tuple[Tensor, Tensor]:
        """The sums over the keys below and above each query, weights of the sums included."""
        # The weight of the nearest key is 1: the factor cancels, and no sum of weights is 0.
        decay = self.carry * (-self.gap / self.tau).exp()
        nearest = torch.minimum(self.to_below, self.to_above)
        nearest = torch.where(self.has_below & self.has_above, nearest, 0)
        only = torch.where(self.has_below, self.to_below, self.to_above)
        nearest = torch.where(self.has_below ^ self.has_above, only, nearest).detach()
        weight_below = self._weight(self.has_below, self.to_below - nearest)
        weight_above = self._weight(self.has_above, self.to_above - nearest)
        self.decay, self.weights = decay, (weight_below, weight_above)
        up, down = self.scan(self.v, decay, False), self.scan(self.v, _shift(decay, -1), True)
        return weight_below * self.take(up, self.below), weight_above * self.take(down, self.above)

    def _weight(self, has: Tensor, distance: Tensor) -> Tensor:
        return torch.where(has, (-torch.where(has, distance, 0) / self.tau).exp(), 0)

    def attend(self, relu: bool) -> Tensor:
        """`sum_j w_ij v_j / sum_j w_ij`, rows in their original order."""
        if relu:
            low, high, means = self.relu()
            total = low[..., -1:] + high
            out = (low[..., :-1] - means * low[..., -1:]) / torch.where(total == 0, 1, total)
        else:
            sums = sum(self.laplace(), start=torch.zeros_like(self.v))
            out = sums[..., :-1] / torch.where(self.real, sums[..., -1:], 1)
        return torch.where(self.real, out, 0).flatten(-2).to(self.dtype)

    def relu(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sums of `q - k` times values below each query, those of `k - q`, and the means."""
        scan, carry, back = self.scan, self.carry, _shift(self.carry, -1)
        self.sums = sums = scan(self.v, carry, False)
        steps = torch.where(carry == 0, 0, self.gap * _shift(sums, 1))
        areas = self.take(scan(steps, carry, False), self.below)
        low = areas + self.to_below * self.take(sums, self.below)
        self.counts = counts = scan(self.v[..., -1:], back, True)
        areas = self.take(scan(_shift(self.gap * counts, -1), back, True), self.above)
        high = areas + self.to_above * self.take(counts, self.above)
        means = self.take(sums, self.last)[..., :-1] / self.sizes
        return torch.where(self.has_below, low, 0), torch.where(self.has_above, high, 0), means

    def gradients(self, grad_out: Tensor, relu: bool) -> tuple[Tensor, ...]:
        """The gradients of `v, k, q, tau`, that of `q` empty if the queries are the keys."""
        grad = torch.where(self.real, self.split(grad_out), 0)
        grad_v, grad_k, grad_q = (self._relu_gradients if relu else self._laplace_gradients)(grad)
        grad_v = self.put(torch.where(self.real, grad_v, 0), self.rows).flatten(-2).to(self.dtype)
        # The result stays the same if queries, keys and tau are scaled by one factor, or queries
        # and keys moved by one distance: the gradient of tau follows from those of the others.
        scaled = (self.q - self.origin) * grad_q + (self.keys - self.origin) * grad_k
        scaled = torch.where(self.real.squeeze(-1), scaled, 0)
        tau = self.tau.squeeze(-1)
        grad_tau = torch.zeros_like(tau) if relu else -scaled.flatten(0, -2).sum(0) / tau
        grad_k = torch.zeros_like(grad_k).scatter(-2, self.rows, grad_k)
        if not self.shared:
            return grad_v, grad_k.to(self.key_dtype), grad_q.to(self.key_dtype), grad_tau
        return grad_v, (grad_k + grad_q).to(self.key_dtype), grad_k.new_empty(0), grad_tau

    def _laplace_gradients(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        below, above = self.laplace()
        sums = below + above
        total = torch.where(self.real, sums[..., -1:], 1)
        grad = grad / total
        of_total = -(grad * sums[..., :-1]).sum(-1, keepdim=True) / total
        grad = torch.cat([grad, of_total], -1)
        grad_q = (grad * (above - below)).sum(-1) / self.tau.squeeze(-1)
        back = _shift(self.decay, -1)
        from_above = self.scan(self.put(self.weights[0] * grad, self.below), back, True)
        from_below = self.scan(self.put(self.weights[1] * grad, self.above), self.decay, False)
        grad_k = (self.v * (from_above - from_below)).sum(-1) / self.tau.squeeze(-1)
        return (from_above + from_below)[..., :-1], grad_k, grad_q

    def _relu_gradients(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scan, carry, back = self.scan, self.carry, _shift(self.carry, -1)
        low, high, means = self.relu()
        total = low[..., -1:] + high
        divisor = torch.where(total == 0, 1, total)
        grad = torch.where(total == 0, 0, grad / divisor)
        out = (low[..., :-1] - means * low[..., -1:]) / divisor
        of_high = -(grad * out).sum(-1, keepdim=True)
        of_low = of_high - (grad * means).sum(-1, keepdim=True)
        of_means = self.take(scan(grad * low[..., -1:], carry, False), self.last)
        grad = torch.where(self.has_below, torch.cat([grad, of_low], -1), 0)
        of_high = torch.where(self.has_above, of_high, 0)
        grad_q = (grad * self.take(self.sums, self.below)).sum(-1, keepdim=True)
        grad_q = grad_q - of_high * self.take(self.counts, self.above)
        slopes = scan(self.put(grad, self.below), back, True)
        steps = torch.where(back == 0, 0, _shift(self.gap * slopes, -1))
        grad_v = scan(self.put(self.to_below * grad, self.below) + steps, back, True)
        grad_k = torch.where(self.real, scan(self.put(of_high, self.above), carry, False), 0)
        grad_k = grad_k - (self.v * slopes).sum(-1, keepdim=True)
        return grad_v[..., :-1] - of_means / self.sizes, grad_k.squeeze(-1), grad_q.squeeze(-1)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _bounds(x: Tensor, lengths: OptTensor, ptr: OptTensor) -> tuple[Tensor, Tensor]:
    """The first row of the set of each row, and the one after its last: `[..., N, 1]` or less."""
    if ptr is not None:
        sets = set_of_row(ptr, x.shape[0])
        return ptr[sets].long().unsqueeze(-1), ptr[sets + 1].long().unsqueeze(-1)
    start = torch.zeros((1, 1), dtype=torch.int64, device=x.device)
    if lengths is None:
        return start, start + x.shape[-2]
    return start, lengths.long()[..., None, None]


def _search(keys: Tensor, q: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """The row of the last key of its set that is not above each query; `start - 1` if all are."""
    low, high = start.expand(q.shape), end.expand(q.shape)
    for _ in range(q.shape[-2].bit_length()):
        middle = ((low + high) // 2).clamp(max=q.shape[-2] - 1)
        is_open = low < high
        goes_up = is_open & (keys.gather(-2, middle) <= q)
        high = torch.where(is_open & ~goes_up, middle, high)
        low = torch.where(goes_up, middle + 1, low)
    return low - 1
