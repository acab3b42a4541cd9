/** The way through the pages of a table. */
import React from 'react';
import { pages, SIZE } from '../hub-model/query';
import { usePage } from './context';

/** Properties of the buttons. */
export interface IPagesProps {
  readonly page: number;
  /** Rows on all pages. */
  readonly total: number;
  readonly onChange: (page: number) => void;
}

/** Two buttons, and which rows are shown. */
export function Pages({ page, total, onChange }: IPagesProps): React.JSX.Element {
  const { trans } = usePage();
  const first = (page - 1) * SIZE + 1;
  const last = Math.min(total, first + SIZE - 1);
  return (
    <nav className="d-flex gap-2 align-items-center" aria-label={trans.__('Pages')}>
      <button
        type="button"
        className="btn btn-sm btn-secondary"
        disabled={page <= 1}
        onClick={() => onChange(page - 1)}
      >
        {trans.__('Previous')}
      </button>
      <span role="status">
        {total ? trans.__('%1 to %2 of %3', first, last, total) : trans.__('Nothing is found.')}
      </span>
      <button
        type="button"
        className="btn btn-sm btn-secondary"
        disabled={page >= pages(total)}
        onClick={() => onChange(page + 1)}
      >
        {trans.__('Next')}
      </button>
    </nav>
  );
}
