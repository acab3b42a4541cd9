/** The query of the table, and how the address of the page keeps it. Pure. */
import { Kind } from '../hub-api/limits';

/** The columns by which the table can be sorted. */
export type Column =
  'kind' | 'name' | 'limit' | 'used' | 'waiting' | 'guaranteed' | 'idle' | 'changed';

/** The query for one page of the table. */
export interface IQuery {
  readonly search: string;
  /** Empty: all kinds. */
  readonly kind: Kind | '';
  readonly sort: Column;
  readonly descending: boolean;
  readonly page: number;
}

/** Rows of a page. */
export const SIZE = 50;
/** The table at first: the default, the cap, groups, then users. */
export const START: IQuery = { search: '', kind: '', sort: 'kind', descending: false, page: 1 };

/** The query for another order: again by the same column turns it round. */
export function sortBy(query: IQuery, sort: Column): IQuery {
  const descending = query.sort === sort ? !query.descending : false;
  return { ...query, sort, descending, page: 1 };
}

/** The address of a page of the table, below the API. */
export function addressOf(query: IQuery): string {
  const fields = new URLSearchParams({
    sort: `${query.descending ? '-' : ''}${query.sort}`,
    page: String(query.page),
    size: String(SIZE)
  });
  if (query.search) {
    fields.set('search', query.search);
  }
  if (query.kind) {
    fields.set('kind', query.kind);
  }
  return `subjects?${fields}`;
}

/** How many pages `total` rows have, at least one. */
export function pages(total: number): number {
  return Math.max(1, Math.ceil(total / SIZE));
}
