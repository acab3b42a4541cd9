/** The search above the table. */
import React, { useEffect, useState } from 'react';
import { Kind } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Field } from '../hub-common/field';
import { IQuery } from '../hub-model/query';

/** Milliseconds without a letter after which the service is asked. */
const PAUSE = 250;
const MAX_SEARCH = 255;

/** A text and a kind, and what else is in the line. */
export function Filter(props: {
  readonly query: IQuery;
  readonly onChange: (query: IQuery) => void;
  /** Shown at the end of the line. */
  readonly children?: React.ReactNode;
}): React.JSX.Element {
  const { trans } = usePage();
  const { query, onChange, children } = props;
  const [typed, setTyped] = useState(query.search);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (typed !== query.search) {
        onChange({ ...query, search: typed, page: 1 });
      }
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed, query, onChange]);
  const kinds: readonly (readonly [Kind | '', string])[] = [
    ['', trans.__('All')],
    ['User', trans.__('Users')],
    ['Group', trans.__('Groups')],
    ['Namespace', trans.__('Namespaces')],
    ['Default', trans.__('Default')],
    ['Cap', trans.__('Cap')]
  ];
  return (
    <form
      role="search"
      className="d-flex flex-wrap gap-3 mb-2 align-items-end"
      onSubmit={event => event.preventDefault()}
    >
      <Field label={trans.__('Name')}>
        {control => (
          <input
            {...control}
            type="search"
            className="form-control"
            value={typed}
            maxLength={MAX_SEARCH}
            onChange={event => setTyped(event.target.value)}
          />
        )}
      </Field>
      <Field label={trans.__('Show')}>
        {control => (
          <select
            {...control}
            className="form-select"
            value={query.kind}
            onChange={event =>
              onChange({ ...query, kind: event.target.value as Kind | '', page: 1 })
            }
          >
            {kinds.map(([kind, title]) => (
              <option key={kind} value={kind}>
                {title}
              </option>
            ))}
          </select>
        )}
      </Field>
      {children}
    </form>
  );
}
