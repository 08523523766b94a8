"""NamedTuples of arrays as compiled rules see them: a few pointers, with no references to count.

A rule gets its state handed over as a NamedTuple of arrays. To numba that is one argument per field of every array, and
a reference counted for each, at every call: more than the rules themselves cost. So such tuples are made known to it as
`Bundle`s, from which a rule takes an array where it names one. Nothing of this shows in a rule.
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

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Bundle(types.Type):
    """A NamedTuple of int64 arrays: `blocks` are handed over, `views` are arrays that lie in a block, one per row."""

    def __init__(self, name: str, blocks: tuple[tuple[str, int], ...], views: tuple[tuple[str, str, int], ...]) -> None:
        """`blocks`: name and dimensions; `views`: name, block and row."""
        self.blocks, self.views = blocks, views
        super().__init__(name=f"Bundle({name}, {blocks}, {views})")

    def place_of(self, attribute: str) -> tuple[str, int, int] | None:
        """Block, its dimensions, and row (-1: all of it) of an attribute."""
        dimensions = dict(self.blocks)
        if attribute in dimensions:
            return attribute, dimensions[attribute], -1
        found = next((view for view in self.views if view[0] == attribute), None)
        return None if found is None else (found[1], dimensions[found[1]], found[2])


def bundle(of: type[T], blocks: dict[str, int], views: dict[str, Sequence[str]] | None = None) -> None:
    """Make a NamedTuple class known to numba. `blocks`: dimensions by name; `views`: by block, which field is each row.

    Its arrays are C-contiguous int64, and live as long as the call.
    """
    rows = tuple((name, block, k) for block, names in (views or {}).items() for k, name in enumerate(names))
    kind = Bundle(of.__name__, tuple(blocks.items()), rows)
    typeof_impl.register(of, lambda value, context: kind)  # noqa: ARG005 - as numba calls it


def array(dimensions: int) -> types.Array:
    """The type of a C-contiguous int64 array."""
    return types.Array(types.int64, dimensions, "C")


@register_model(Bundle)
class BundleModel(models.StructModel):
    """A pointer and the dimensions of each block."""

    def __init__(self, manager: Any, kind: Bundle) -> None:  # noqa: ANN401 - numba's own
        """Lay out `kind`."""
        members: list[tuple[str, types.Type]] = []
        for name, dimensions in kind.blocks:
            members.append((name, types.CPointer(types.int64)))
            members += [(f"{name}_{k}", types.intp) for k in range(dimensions)]
        super().__init__(manager, kind, members)


@unbox(Bundle)
def unbox_bundle(kind: Bundle, value: Any, c: Any) -> NativeValue:  # noqa: ANN401 - numba's own
    """Take the blocks' pointers; the tuple keeps the arrays alive."""
    out = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    failed = cgutils.false_bit
    for name, dimensions in kind.blocks:
        held = c.pyapi.object_getattr_string(value, name)
        native = c.unbox(array(dimensions), held)
        block = c.context.make_array(array(dimensions))(c.context, c.builder, native.value)
        setattr(out, name, block.data)
        for k, length in enumerate(cgutils.unpack_tuple(c.builder, block.shape, dimensions)):
            setattr(out, f"{name}_{k}", length)
        failed = c.builder.or_(failed, native.is_error)
        if c.context.enable_nrt:
            c.context.nrt.decref(c.builder, array(dimensions), native.value)
        c.pyapi.decref(held)
    return NativeValue(out._getvalue(), is_error=failed)  # noqa: SLF001 - numba's way


@infer_getattr
class BundleAttribute(AttributeTemplate):
    """Every block and every view is an array."""

    key = Bundle

    def generic_resolve(self, kind: Bundle, attribute: str) -> types.Type | None:
        """The attribute's type; None where there is none."""
        place = kind.place_of(attribute)
        return None if place is None else array(place[1] - (place[2] >= 0))


@lower_getattr_generic(Bundle)
def bundle_attribute(context: Any, builder: Any, kind: Bundle, value: Any, attribute: str) -> Any:  # noqa: ANN401 - numba's own
    """The block's array, or the part of it that is the view, without a reference to count."""
    name, dimensions, row = kind.place_of(attribute) or ("", 0, 0)
    held = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    data = getattr(held, name)
    shape = [getattr(held, f"{name}_{k}") for k in range(dimensions)]
    if row >= 0:
        shape = shape[1:]
        place = context.get_constant(types.intp, row)
        for length in shape:
            place = builder.mul(place, length)
        data = builder.gep(data, [place])
    itemsize = context.get_constant(types.intp, 8)
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    out = context.make_array(array(len(shape)))(context, builder)
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
