/** The position of the popover. */
import { place } from '../../src/bars/place';

const WINDOW = { width: 1000, height: 600 };
const SIZE = { width: 300, height: 200 };

/** A button of 50 by 20 with its right lower corner there. */
function button(right: number, bottom: number) {
  return { left: right - 50, right, top: bottom - 20, bottom };
}

test('opens below the button, flush with its right side', () => {
  expect(place(button(800, 40), SIZE, WINDOW)).toEqual({ left: 500, top: 44 });
});

test('opens above if there is no room below, and more above', () => {
  expect(place(button(800, 580), SIZE, WINDOW)).toEqual({ left: 500, top: 356 });
});

test('opens below if there is even less room above', () => {
  expect(place(button(800, 40), { width: 300, height: 590 }, WINDOW).top).toBe(44);
});

test.each([
  [button(100, 40), 8],
  [button(999, 40), 692]
])('never extends beyond the sides of the window', (anchor, left) => {
  expect(place(anchor, SIZE, WINDOW).left).toBe(left);
});

test('never extends above the window', () => {
  expect(place(button(800, 400), { width: 300, height: 500 }, WINDOW).top).toBe(8);
});

test('in right-to-left text is flush with the left side, with the same margins', () => {
  expect(place(button(300, 40), SIZE, WINDOW, true)).toEqual({ left: 250, top: 44 });
  expect(place(button(999, 40), SIZE, WINDOW, true).left).toBe(692);
  expect(place(button(54, 40), SIZE, WINDOW, true).left).toBe(8);
});

test('stays in the window if it fits, in both directions', () => {
  for (let right = 0; right <= WINDOW.width + 50; right += 7) {
    for (const rtl of [false, true]) {
      const { left, top } = place(button(right, 300), SIZE, WINDOW, rtl);
      expect(left).toBeGreaterThanOrEqual(8);
      expect(left + SIZE.width).toBeLessThanOrEqual(WINDOW.width - 8);
      expect(top + SIZE.height).toBeLessThanOrEqual(WINDOW.height - 8);
    }
  }
});
