/** Visibility of this tab, and whether a notice is worth showing there. Pure. */
import { INotice } from './notices';

/** Visibility of this tab at a notice. */
export interface IVisibility {
  /** The tab is not visible. */
  readonly hidden: boolean;
  /** The panel, or the slider in its popover, is in view. */
  readonly open: boolean;
}

/** Milliseconds: a shorter wait gets no notice; after a longer one, the user has probably stopped looking. */
const SHORT = 3000;
const LONG = 30_000;

/** Whether to show a notice, or whether the user sees the change anyway. */
export function isWorthShowing({ kind, waited }: INotice, { hidden, open }: IVisibility): boolean {
  const unseen = hidden || !open;
  return kind === 'lost' || kind === 'lowered'
    ? unseen
    : waited >= LONG || (waited >= SHORT && unseen);
}
