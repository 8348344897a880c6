"""Where the panels of a corner plot lie."""

import dataclasses

_LARGEST, _WIDEST = 1.9, 14.0
"""Inches of a panel, and of all panels side by side."""
_TRACES_WIDTH = 4.3
_HIGHEST = 6.2
_FEWEST_INSIDE = 4
"""Variables from which on the traces fit into the empty corner."""

Rectangle = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class CornerLayout:
    """Square panels, a triangle or all of them; what is to their right, or above a triangle, may be traces.

    Attributes:
        n: variables.
        letters: of the longest name.
        traces: whether there are any.
        figures: of the longest number.
        whole: whether there are panels above the diagonal.
    """

    n: int
    letters: int
    traces: bool
    figures: int = 5
    whole: bool = False

    @property
    def panel(self) -> float:
        """Inches of a side."""
        return min(_LARGEST, _WIDEST / self.n)

    @property
    def high(self) -> float:
        """Inches of a panel's height: one alone is as high as the traces beside it."""
        return self._beside if self.n == 1 and self.traces else self.panel

    @property
    def small(self) -> bool:
        """Whether names must be turned to fit beside their panels."""
        return self.panel < 0.075 * self.letters + 0.25 or self.panel < 1.2

    @property
    def gap(self) -> float:
        """Inches between two panels."""
        return 0.03 + 0.05 * self.panel

    @property
    def numbers(self) -> float:
        """Inches for the longest number."""
        return 0.15 + 0.062 * self.figures

    @property
    def left(self) -> float:
        """Inches for names and numbers at the left."""
        return self.numbers + (0.08 + 0.068 * self.letters if self.small else 0.28)

    @property
    def bottom(self) -> float:
        """Inches for names and numbers below."""
        return self.left + 0.15 if self.small else 0.65

    @property
    def size(self) -> tuple[float, float]:
        """Inches of the figure."""
        across = self.n * (self.panel + self.gap)
        beside = _TRACES_WIDTH + 0.2 if self.traces and not self._inside else 0.1
        height = max(across + self.bottom + 0.35, 3.4 if self.traces else 0.0)
        return across + self.left + beside, height

    def rectangle(self, row: int, column: int) -> Rectangle:
        """The rectangle of a panel, in shares of the figure."""
        step = self.panel + self.gap
        x = self.left + column * step
        y = self.bottom + (self.n - 1 - row) * step
        return self._shares(x, y, self.panel, self.high)

    def trace_rectangles(self) -> tuple[Rectangle, Rectangle]:
        """The rectangles of the ELBO and of the components below it."""
        width, height = self.size
        if self._inside:
            step = self.panel + self.gap
            rows = self.n // 2
            x = self.left + rows * step + 1.0
            high = min(rows * step - 0.75, 5.0)
            wide = min(width - x - 0.2, 1.6 * high)
            x, y = width - wide - 0.2, height - 0.35 - high
        else:
            x, wide = width - _TRACES_WIDTH + 0.85, _TRACES_WIDTH - 1.05
            high = min(self._beside, _HIGHEST)
            y = self.bottom + self._beside - high
        below = 0.36 * high
        return (
            self._shares(x, y + below + 0.12, wide, high - below - 0.12),
            self._shares(x, y, wide, below),
        )

    @property
    def _beside(self) -> float:
        """Inches of the traces' height, if they are beside the panels."""
        return self.size[1] - self.bottom - 0.35 - self.gap

    @property
    def _inside(self) -> bool:
        return self.n >= _FEWEST_INSIDE and not self.whole

    def _shares(self, x: float, y: float, wide: float, high: float) -> Rectangle:
        width, height = self.size
        return x / width, y / height, wide / width, high / height
