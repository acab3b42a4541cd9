/** A small table: heads of its columns, and its rows. */
import React from 'react';

/** Properties of the table. */
export interface IListingProps {
  readonly heads: readonly string[];
  /** Classes beside `table`. */
  readonly className?: string;
  /** The rows. */
  readonly children: React.ReactNode;
}

/** The table; each head names the column below it. */
export function Listing({ heads, className, children }: IListingProps): React.JSX.Element {
  return (
    <table className={className ? `table ${className}` : 'table'}>
      <thead>
        <tr>
          {heads.map(head => (
            <th key={head} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
