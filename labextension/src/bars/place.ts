/** The position of a popup beside its anchor. Pure; all in CSS pixels of the window. */

/** A rectangle, as `getBoundingClientRect` has it. */
export interface IBox {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** A size. */
export interface ISize {
  readonly width: number;
  readonly height: number;
}

/** Gaps between popup and anchor, and to the edges of the window. */
const GAP = 4;
const EDGE = 8;

/**
 * Below `anchor` and flush with the end of its line, or above it if there is more room; never beyond the left or top.
 * `rtl`: lines run from right to left.
 */
export function place(
  anchor: IBox,
  size: ISize,
  window: ISize,
  rtl = false
): { left: number; top: number } {
  const flush = rtl ? anchor.left : anchor.right - size.width;
  const left = Math.min(flush, window.width - size.width - EDGE);
  const below = anchor.bottom + GAP;
  const above = anchor.top - GAP - size.height;
  const fits = below + size.height + EDGE <= window.height;
  const top = fits || anchor.top < window.height - anchor.bottom ? below : above;
  return { left: Math.max(EDGE, left), top: Math.max(EDGE, top) };
}
