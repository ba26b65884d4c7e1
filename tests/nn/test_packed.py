"""Operations on packed rows."""

import torch

from slicegraph.nn.packed import PaddedSets, gather_rows, prepend_tokens, scatter_rows

PTR = torch.tensor([0, 2, 2, 5])


def test_padding_and_back():
    x, sets = torch.arange(1.0, 11.0).view(5, 2), PaddedSets(PTR)
    padded = sets.pad(x)
    assert torch.equal(padded[sets.real], x)
    assert not bool(padded[~sets.real].any())
    assert torch.equal(sets.unpad(padded), x)


def test_tokens_come_first_in_every_set_even_an_empty_one():
    x, token = torch.arange(1.0, 6.0).view(5, 1), torch.tensor([[9.0]])
    assert prepend_tokens(x, token, PTR).flatten().tolist() == [9, 1, 2, 9, 9, 3, 4, 5]


def test_gradients_of_rows():
    x, index = torch.randn(5, 2, dtype=torch.float64, requires_grad=True), torch.tensor([3, 0, 4])
    for function in (lambda x: gather_rows(x, index), lambda x: scatter_rows(x[:3], index, 6)):
        assert torch.autograd.gradcheck(function, x)
        assert torch.autograd.gradgradcheck(lambda x, f=function: f(x).square(), x)
