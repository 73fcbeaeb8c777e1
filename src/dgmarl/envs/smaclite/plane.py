"""2D vectors as pairs of arrays, and half-planes of admissible velocities."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Vector:
    """A batch of 2D vectors; x and y have the same shape."""

    x: Any
    y: Any

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(self.x - other.x, self.y - other.y)

    def __neg__(self) -> "Vector":
        return Vector(-self.x, -self.y)

    def __mul__(self, factor: Any) -> "Vector":
        return Vector(self.x * factor, self.y * factor)

    def dot(self, other: "Vector") -> Array:
        return self.x * other.x + self.y * other.y

    def det(self, other: "Vector") -> Array:
        """Positive if `other` points to the left of this vector."""
        return self.x * other.y - self.y * other.x

    def left(self) -> "Vector":
        """Turned by 90° to the left."""
        return Vector(-self.y, self.x)

    def right(self) -> "Vector":
        """Turned by 90° to the right."""
        return Vector(self.y, -self.x)

    def length(self) -> Array:
        return jnp.sqrt(self.dot(self))

    def unit(self) -> "Vector":
        """Normalised to length 1; zero stays zero."""
        length = self.length()
        return self * (1.0 / jnp.where(length > 0, length, 1.0))


class Lines(NamedTuple):
    """Half-planes of velocities, to the left of the line through `point` along `direction`."""

    point: Vector
    direction: Vector
    valid: Bool[Array, "K L"]

    def violation(self, velocity: Vector) -> Float[Array, "K L"]:
        """How far a velocity lies on the forbidden side of each line."""
        return self.direction.det(self.point - velocity)


def choose(mask: Bool[Array, "*L"], one: Any, other: Any) -> Any:
    """`jnp.where` on pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(mask, a, b), one, other)
