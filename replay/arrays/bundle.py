"""NamedTuples of arrays as compiled rules see them: a few pointers, with no references to count.

A rule gets its state handed over as a NamedTuple of arrays. To numba that is one argument per field of every array, and
a reference counted for each, at every call: more than the rules themselves cost. So such tuples are made known to it as
`Bundle`s, from which a rule takes an array where it names one. An array is of int64, or of records (`records`).
Nothing of this shows in a rule.
Written against numba's extension interface (numba.extending), which is pinned with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array

from replay.arrays.records import type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
Block = tuple[int, types.Type]  # dimensions, and what an element is


class Bundle(types.Type):
    """A NamedTuple of arrays: `blocks` are handed over, `views` are arrays that lie in a block, one per row."""

    def __init__(self, name: str, blocks: dict[str, Block], views: tuple[tuple[str, str, int], ...]) -> None:
        """`views`: name, block and row."""
        self.blocks, self.views = blocks, views
        super().__init__(name=f"Bundle({name}, {blocks}, {views})")

    def place_of(self, attribute: str) -> tuple[str, int] | None:
        """Block and row (-1: all of it) of an attribute."""
        if attribute in self.blocks:
            return attribute, -1
        found = next((view for view in self.views if view[0] == attribute), None)
        return None if found is None else (found[1], found[2])


def bundle(of: type[T], blocks: dict[str, int | type], views: dict[str, Sequence[str]] | None = None) -> None:
    """Make a NamedTuple class known to numba, with its arrays, C-contiguous, that live as long as the call.

    `blocks`: by name the dimensions of an int64 array, or the class of the records in an array of one dimension;
    `views`: by block, which field is each row.
    """
    rows = tuple((name, block, k) for block, names in (views or {}).items() for k, name in enumerate(names))
    kind = Bundle(of.__name__, {name: block_of(what) for name, what in blocks.items()}, rows)
    typeof_impl.register(of, lambda value, context: kind)  # noqa: ARG005 - as numba calls it


def block_of(what: int | type) -> Block:
    """Dimensions and element of a block."""
    return (what, types.int64) if isinstance(what, int) else (1, numba.from_dtype(type_of(what)))


def array(block: Block, *, row: bool = False) -> types.Array:
    """The type of a block's array, or of one row of it."""
    dimensions, element = block
    return types.Array(element, dimensions - row, "C")


@register_model(Bundle)
class BundleModel(models.StructModel):
    """A pointer and the dimensions of each block."""

    def __init__(self, manager: Any, kind: Bundle) -> None:  # noqa: ANN401 - numba's own
        """Lay out `kind`."""
        members: list[tuple[str, types.Type]] = []
        for name, (dimensions, element) in kind.blocks.items():
            members.append((name, types.CPointer(element)))
            members += [(f"{name}_{k}", types.intp) for k in range(dimensions)]
        super().__init__(manager, kind, members)


@unbox(Bundle)
def unbox_bundle(kind: Bundle, value: Any, c: Any) -> NativeValue:  # noqa: ANN401 - numba's own
    """Take the blocks' pointers; the tuple keeps the arrays alive."""
    out = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    failed = cgutils.false_bit
    for name, block in kind.blocks.items():
        held = c.pyapi.object_getattr_string(value, name)
        native = c.unbox(array(block), held)
        unboxed = c.context.make_array(array(block))(c.context, c.builder, native.value)
        setattr(out, name, unboxed.data)
        for k, length in enumerate(cgutils.unpack_tuple(c.builder, unboxed.shape, block[0])):
            setattr(out, f"{name}_{k}", length)
        failed = c.builder.or_(failed, native.is_error)
        if c.context.enable_nrt:
            c.context.nrt.decref(c.builder, array(block), native.value)
        c.pyapi.decref(held)
    return NativeValue(out._getvalue(), is_error=failed)  # noqa: SLF001 - numba's way


@infer_getattr
class BundleAttribute(AttributeTemplate):
    """Every block and every view is an array."""

    key = Bundle

    def generic_resolve(self, kind: Bundle, attribute: str) -> types.Type | None:
        """The attribute's type; None where there is none."""
        place = kind.place_of(attribute)
        return None if place is None else array(kind.blocks[place[0]], row=place[1] >= 0)


@lower_getattr_generic(Bundle)
def bundle_attribute(context: Any, builder: Any, kind: Bundle, value: Any, attribute: str) -> Any:  # noqa: ANN401 - numba's own
    """The block's array, or the part of it that is the view, without a reference to count."""
    name, row = kind.place_of(attribute) or ("", 0)
    held = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    data = getattr(held, name)
    shape = [getattr(held, f"{name}_{k}") for k in range(kind.blocks[name][0])]
    if row >= 0:
        shape = shape[1:]
        place = context.get_constant(types.intp, row)
        for length in shape:
            place = builder.mul(place, length)
        data = builder.gep(data, [place])
    found = array(kind.blocks[name], row=row >= 0)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(found.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    out = context.make_array(found)(context, builder)
    populate_array(out, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return out._getvalue()  # noqa: SLF001 - numba's way


if numba.config.DISABLE_JIT:

    def borrowed(value: T) -> T:
        """The same array."""
        return value

else:

    @intrinsic
    def borrowed(context: Any, value: Any) -> Any:  # noqa: ANN401, ARG001 - numba's own
        """The same array, without a reference to count: for a function whose caller holds it."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
            held = context.make_array(signature.args[0])(context, builder, arguments[0])
            held.meminfo = cgutils.get_null_value(held.meminfo.type)
            held.parent = cgutils.get_null_value(held.parent.type)
            return held._getvalue()  # noqa: SLF001 - numba's way

        return value(value), generate
