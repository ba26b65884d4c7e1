"""Sort the channels of two padded sets, which stand for molecules.

A "molecule" is a set of atoms with three random features each. Two molecules, of 3 and 5 atoms, are
padded to 5 rows and sorted in one call. Run: python examples/sort_a_set.py
"""

import torch

from slicegraph.ops import column_sort, interleave_descending

torch.manual_seed(0)
torch.set_printoptions(precision=2, sci_mode=False)

small, large = torch.randn(3, 3), torch.randn(5, 3)
lengths = torch.tensor([3, 5])

# The padding value is easy to spot: padded rows are never sorted, whatever their values.
x = torch.full((2, 5, 3), 99.0)
x[0, :3], x[1] = small, large
x.requires_grad_()

values, indices = column_sort(x, lengths)
print("The small set, padded with 99:")
print(x[0].detach())
print("Each channel sorted by itself; the padding comes out as zeros:")
print(values[0].detach())
print("Where each value came from (row numbers):")
print(indices[0, :3])

# The padding changes nothing: sorted alone, the set gives the same values to the bit.
alone = column_sort(small, return_indices=False)
print("Same as sorted alone, without padding:", torch.equal(values[0, :3], alone))

# The same two sets packed one after the other, as in a PyG batch.
packed = torch.cat([small, large])
ptr = torch.tensor([0, 3, 8])
packed_values = column_sort(packed, ptr=ptr, return_indices=False)
print("Same as packed:", torch.equal(packed_values, torch.cat([values[0, :3], values[1]])))

# The gradient goes to the row that each value came from; padded rows have none.
(values[:, 0] * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print("Gradient of 1a + 2b + 3c, where a, b, c are the smallest values of the three channels:")
print(x.grad[0])

# Each channel has its own direction: the interleaved order of layer 1 of 2.
descending = interleave_descending(num_channels=3, layer=1, num_layers=2)
print("Interleaved order, descending channels:", descending.tolist())
print(column_sort(small, descending=descending, return_indices=False))
