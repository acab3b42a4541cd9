/** The table of users, groups, the default and the cap: searched, sorted and paged by the service, edited in place. */
import React, { useEffect, useState } from 'react';
import { versionOf } from '../hub-api/changes';
import { ISubject, ISubjectRow, readSubjects } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Problem } from '../hub-common/messages';
import { Pages } from '../hub-common/pages';
import { Questions } from '../hub-common/questions';
import { useResource } from '../hub-common/resource';
import { ISaving, useSaving } from '../hub-common/saving';
import { LimitDialog } from '../hub-limit/limit-dialog';
import { editOf } from '../hub-model/edits';
import { addressOf, Column, IQuery, pages, sortBy, START } from '../hub-model/query';
import { keyOf } from '../hub-model/subject';
import { Bulk } from './bulk';
import { Explanation } from './explanation';
import { Filter } from './filter';
import { NewLimit } from './new-limit';
import { Row } from './row';

/** The table with its search, its pages, and what is done with chosen rows. */
export function Table(props: {
  readonly mayEdit: boolean;
  /** Name of the hub. */
  readonly hub: string;
}): React.JSX.Element {
  const { mayEdit, hub } = props;
  const { api, trans, counts } = usePage();
  const [query, setQuery] = useState(START);
  const [chosen, setChosen] = useState<ReadonlyMap<string, ISubjectRow>>(new Map());
  const [explained, setExplained] = useState('');
  const [opened, setOpened] = useState<ISubject | 'new' | null>(null);
  const saving = useSaving();
  const version = versionOf(counts, 'users', 'limits');
  const { value, error, stale } = useResource(api, addressOf(query), readSubjects, version);
  const rows = value?.items ?? [];

  useEffect(() => {
    if (value && !stale && query.page > pages(value.total)) {
      setQuery({ ...query, page: pages(value.total) });
    }
  }, [value, stale, query]);
  function choose(which: readonly ISubjectRow[], on: boolean): void {
    const next = new Map(chosen);
    for (const row of which) {
      if (on) {
        next.set(keyOf(row.subject), row);
      } else {
        next.delete(keyOf(row.subject));
      }
    }
    setChosen(next);
  }
  // An edit is for the version that is seen now; rows on other pages stay as they were seen.
  const seen = new Map(rows.map(row => [keyOf(row.subject), row]));
  const current = [...chosen].map(([key, row]) => seen.get(key) ?? row);

  return (
    <section aria-label={trans.__('Limits')}>
      <Filter query={query} onChange={setQuery}>
        {mayEdit && (
          <button type="button" className="btn btn-secondary" onClick={() => setOpened('new')}>
            {trans.__('New limit…')}
          </button>
        )}
      </Filter>
      {mayEdit && <Bulk rows={current} saving={saving} onClear={() => setChosen(new Map())} />}
      <Outcome saving={saving} />
      {opened === 'new' && (
        <NewLimit hub={hub} onChoose={setOpened} onClose={() => setOpened(null)} />
      )}
      {opened && opened !== 'new' && (
        <LimitDialog
          subject={opened}
          mayEdit={mayEdit}
          saving={saving}
          onClose={() => setOpened(null)}
        />
      )}
      <Questions saving={saving} />
      {explained && <Explanation user={explained} onClose={() => setExplained('')} />}
      {error && <Problem error={error} trans={trans} />}
      <div className="table-responsive">
        <table className="table table-hover gpu-Table" aria-busy={stale}>
          <Head
            query={query}
            onSort={column => setQuery(sortBy(query, column))}
            all={mayEdit ? { rows, chosen, choose } : null}
          />
          <tbody>
            {rows.map(row => (
              <Row
                key={keyOf(row.subject)}
                row={row}
                mayEdit={mayEdit}
                chosen={chosen.has(keyOf(row.subject))}
                onExplain={setExplained}
                onOpen={setOpened}
                onChoose={(which, on) => choose([which], on)}
                onSave={(of, field, typed) => {
                  const edit = editOf(of, { [field]: typed });
                  void saving.propose(edit ? [edit] : []);
                }}
              />
            ))}
          </tbody>
        </table>
      </div>
      {value && (
        <Pages
          page={query.page}
          total={value.total}
          onChange={page => setQuery({ ...query, page })}
        />
      )}
    </section>
  );
}

/** The result of saving, and the way back. */
function Outcome({ saving }: { readonly saving: ISaving }): React.JSX.Element {
  const { trans } = usePage();
  return (
    <div className="d-flex gap-2 align-items-center mb-2 gpu-Outcome">
      <div role="status" className={saving.failed ? 'text-danger-emphasis' : ''}>
        {saving.message}
      </div>
      {saving.undoable > 0 && (
        <button
          type="button"
          className="btn btn-sm btn-secondary"
          disabled={saving.busy}
          onClick={() => void saving.undo()}
        >
          {trans.__('Undo')}
        </button>
      )}
    </div>
  );
}

interface IAll {
  readonly rows: readonly ISubjectRow[];
  readonly chosen: ReadonlyMap<string, ISubjectRow>;
  readonly choose: (rows: readonly ISubjectRow[], on: boolean) => void;
}

function Head(props: {
  readonly query: IQuery;
  readonly onSort: (column: Column) => void;
  readonly all: IAll | null;
}): React.JSX.Element {
  const { trans } = usePage();
  const { query, onSort, all } = props;
  const columns: readonly (readonly [Column, string])[] = [
    ['kind', trans.__('Kind')],
    ['name', trans.__('Name')],
    ['limit', trans.__('Limit')],
    ['used', trans.__('In use')],
    ['waiting', trans.__('Waiting')],
    ['guaranteed', trans.__('Guaranteed')],
    ['idle', trans.__('Idle')],
    ['changed', trans.__('Last change')]
  ];
  const sorted = query.descending ? 'descending' : 'ascending';
  return (
    <thead>
      <tr>
        {all && <ChooseAll {...all} />}
        {columns.map(([column, title]) => (
          <th key={column} scope="col" aria-sort={query.sort === column ? sorted : undefined}>
            <button type="button" className="gpu-Sort" onClick={() => onSort(column)}>
              {title}
              <span aria-hidden="true">
                {query.sort === column ? (query.descending ? ' ↓' : ' ↑') : ''}
              </span>
            </button>
          </th>
        ))}
      </tr>
    </thead>
  );
}

function ChooseAll({ rows, chosen, choose }: IAll): React.JSX.Element {
  const { trans } = usePage();
  const open = rows.filter(
    ({ own, subject }) => !(own?.managedBy && !own.mirrored) && subject.kind !== 'Cap'
  );
  const all = open.length > 0 && open.every(row => chosen.has(keyOf(row.subject)));
  return (
    <td>
      <input
        type="checkbox"
        className="form-check-input"
        aria-label={trans.__('Choose all on this page')}
        checked={all}
        onChange={event => choose(open, event.target.checked)}
      />
    </td>
  );
}
