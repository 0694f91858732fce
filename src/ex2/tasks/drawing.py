"""Pictures of MuJoCo tasks: discs and capsules seen from above, painted with plain arrays; or MuJoCo's own renderer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import mujoco
import numpy as np

from ex2.arrays import Array
from ex2.errors import UsageError

SCREEN_HEIGHT, SCREEN_WIDTH = 240, 320  # pixels


def segment_distance(points: Array, begin: Array, end: Array) -> Array:
    """[..., 2] -> [...]: how far points are from the line between two points, which may be one."""
    length = max(float((end - begin) @ (end - begin)), 1e-12)
    along = np.clip((points - begin) @ (end - begin) / length, 0.0, 1.0)
    distance: Array = np.linalg.norm(points - begin - along[..., None] * (end - begin), axis=-1)
    return distance


class Canvas:
    """A square picture of the plane from -reach to reach, x right and y up; edges are one pixel soft."""

    def __init__(self, pixels: int, reach: float, colour: Sequence[int]) -> None:
        axis = (np.arange(pixels) + 0.5) / pixels * 2 * reach - reach
        self.points = np.stack(np.meshgrid(axis, axis[::-1]), axis=-1)
        self._pixel = 2 * reach / pixels
        self._colours = np.full((pixels, pixels, 3), colour, np.float64)

    def fill(self, mask: Array, colour: Sequence[int]) -> None:
        self._colours[mask] = colour

    def line(self, begin: Array, end: Array, radius: float, colour: Sequence[int]) -> None:
        """A capsule between two points."""
        margin = radius + self._pixel
        columns = slice(
            *np.searchsorted(self.points[0, :, 0], [min(begin[0], end[0]) - margin, max(begin[0], end[0]) + margin])
        )
        rows = slice(
            *np.searchsorted(-self.points[:, 0, 1], [-max(begin[1], end[1]) - margin, -min(begin[1], end[1]) + margin])
        )
        near = self._colours[rows, columns]  # a view: no other pixel is touched
        distance = segment_distance(self.points[rows, columns], begin, end)
        cover = np.clip((radius - distance) / self._pixel + 0.5, 0.0, 1.0)[..., None]
        near[:] = cover * np.asarray(colour) + (1.0 - cover) * near

    def disc(self, middle: Array, radius: float, colour: Sequence[int]) -> None:
        self.line(middle, middle, radius, colour)

    def picture(self) -> Array:
        """uint8 [pixels, pixels, 3]."""
        return self._colours.round().astype(np.uint8)


class Screen:
    """A model through one of its cameras, by OpenGL: the backend that MUJOCO_GL names, or EGL where there is no display."""

    def __init__(self, model: mujoco.MjModel, camera: str) -> None:
        try:
            if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("MUJOCO_GL"):
                from mujoco.egl import GLContext
            else:
                from mujoco import GLContext
            self._gl = GLContext(SCREEN_WIDTH, SCREEN_HEIGHT)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        except Exception as error:  # what is missing depends on the backend
            raise UsageError(
                f"OpenGL could not be started ({type(error).__name__}: {str(error).partition(chr(10))[0]}): "
                "install EGL (libegl1) or OSMesa and name it in MUJOCO_GL, or do not ask for pictures."
            ) from None
        self._model, self._data = model, mujoco.MjData(model)
        self._scene = mujoco.MjvScene(model, maxgeom=200)
        self._option, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA.value, camera)
        self._view = mujoco.MjrRect(0, 0, SCREEN_WIDTH, SCREEN_HEIGHT)

    def draw(self, state: Array) -> Array:
        """A full physics state [1 + nq + nv] as uint8 [height, width, 3]."""
        mujoco.mj_setState(self._model, self._data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        mujoco.mj_forward(self._model, self._data)
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self._model, self._data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
        )
        mujoco.mjr_render(self._view, self._scene, self._context)
        picture = np.empty((SCREEN_HEIGHT, SCREEN_WIDTH, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, self._view, self._context)
        return picture[::-1].copy()
