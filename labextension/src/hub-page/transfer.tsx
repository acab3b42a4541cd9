/** Limits as files: export, and import with a dry run. */
import React, { useId, useState } from 'react';
import { IImport, ILine, readImport } from '../hub-api/details';
import { usePage } from '../hub-common/context';
import { Field } from '../hub-common/field';
import { Listing } from '../hub-common/listing';
import { explainError } from '../hub-common/messages';
import { summary } from '../hub-model/edits';
import { changeText } from '../hub-model/field';
import { subjectName } from '../hub-model/subject';

/** Most bytes of a file, as the service takes it. */
const MAX_BYTES = 8 * 2 ** 20;
/** Lines that are shown. */
const SHOWN = 200;

/** A file that was chosen. */
interface IFile {
  readonly format: 'csv' | 'json';
  readonly text: string;
}

/** Links to both files and, for those who may change limits, the import. */
export function Transfer({ mayEdit }: { readonly mayEdit: boolean }): React.JSX.Element {
  const { api, trans } = usePage();
  return (
    <section aria-label={trans.__('Import and export')}>
      <h2 className="h5">{trans.__('Export')}</h2>
      <p>
        <a href={api.address('limits/export?format=csv')} download>
          {trans.__('All limits as a table (CSV)')}
        </a>
        {' · '}
        <a href={api.address('limits/export?format=json')} download>
          {trans.__('All limits as a document (JSON)')}
        </a>
      </p>
      {mayEdit && <Import />}
    </section>
  );
}

function Import(): React.JSX.Element {
  const { api, trans } = usePage();
  const [file, setFile] = useState<IFile | null>(null);
  const [replace, setReplace] = useState(false);
  const [plan, setPlan] = useState<IImport | null>(null);
  const [message, setMessage] = useState({ text: '', failed: false });
  const [busy, setBusy] = useState(false);
  const id = useId();

  async function ask(from: IFile, all: boolean, dryRun: boolean): Promise<void> {
    setBusy(true);
    try {
      const body = { ...from, replace: all, dryRun };
      const answer = await api.post('limits/import', body, readImport);
      setPlan(dryRun ? answer : null);
      setMessage({
        text: dryRun ? '' : summary(answer.results ?? [], trans),
        failed: Boolean(answer.results?.some(({ result }) => result === 'refused'))
      });
    } catch (error) {
      setPlan(null);
      setMessage({ text: explainError(error as Error, trans), failed: true });
    } finally {
      setBusy(false);
    }
  }
  async function choose(chosen: File | undefined): Promise<void> {
    setPlan(null);
    setFile(null);
    if (!chosen) {
      return;
    }
    if (chosen.size > MAX_BYTES) {
      setMessage({ text: trans.__('The file is too large.'), failed: true });
      return;
    }
    const format = chosen.name.toLowerCase().endsWith('.json') ? 'json' : 'csv';
    const read: IFile = { format, text: await chosen.text() };
    setFile(read);
    await ask(read, replace, true);
  }

  return (
    <>
      <h2 className="h5">{trans.__('Import')}</h2>
      <Field label={trans.__('A file that was exported, or one like it')} className="mb-2">
        {control => (
          <input
            {...control}
            type="file"
            accept=".csv,.json,text/csv,application/json"
            className="form-control w-auto"
            onChange={event => void choose(event.target.files?.[0])}
          />
        )}
      </Field>
      <div className="form-check mb-2">
        <input
          id={`${id}-replace`}
          type="checkbox"
          className="form-check-input"
          checked={replace}
          onChange={event => {
            setReplace(event.target.checked);
            if (file) {
              void ask(file, event.target.checked, true);
            }
          }}
        />
        <label htmlFor={`${id}-replace`} className="form-check-label">
          {trans.__('Remove limits that are not in the file')}
        </label>
      </div>
      <p role="status" className={message.failed ? 'text-danger-emphasis' : ''}>
        {message.text}
      </p>
      {plan && (
        <Plan
          plan={plan}
          busy={busy}
          onImport={() => {
            if (file) {
              void ask(file, replace, false);
            }
          }}
        />
      )}
    </>
  );
}

/** The effect of the import, before anything is written. */
function Plan(props: {
  readonly plan: IImport;
  readonly busy: boolean;
  readonly onImport: () => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { plan, busy, onImport } = props;
  const lines = plan.lines.filter(({ outcome }) => outcome !== 'unchanged');
  return (
    <>
      <p role="status">
        {plan.sentence} {plan.preview?.sentence}
      </p>
      {plan.refused && (
        <p className="alert alert-danger">
          {trans.__('Some lines cannot be written, so nothing is imported. Correct the file.')}
        </p>
      )}
      <button
        type="button"
        className="btn btn-primary mb-3"
        disabled={busy || plan.refused || !lines.length}
        onClick={onImport}
      >
        {trans.__('Import')}
      </button>
      {lines.length > 0 && (
        <Listing
          className="table-sm"
          heads={[trans.__('Line'), trans.__('Limit for'), trans.__('Outcome'), trans.__('Change')]}
        >
          {lines.slice(0, SHOWN).map((line, i) => (
            <Line key={i} line={line} />
          ))}
        </Listing>
      )}
      {lines.length > SHOWN && (
        <p>{trans.__('%1 lines more are not shown.', lines.length - SHOWN)}</p>
      )}
    </>
  );
}

function Line({ line }: { readonly line: ILine }): React.JSX.Element {
  const { trans } = usePage();
  const outcomes = {
    added: trans.__('added'),
    changed: trans.__('changed'),
    removed: trans.__('removed'),
    unchanged: trans.__('unchanged'),
    refused: trans.__('refused')
  };
  return (
    <tr>
      <td>{line.line ?? '–'}</td>
      <th scope="row">{line.subject ? subjectName(line.subject, trans) : '–'}</th>
      <td>{outcomes[line.outcome]}</td>
      <td>
        {line.changes.map(({ field, from, to }) => (
          <div key={field}>{changeText(field, from, to, trans)}</div>
        ))}
        {line.errors.map(error => (
          <div key={error} className="text-danger-emphasis">
            {error}
          </div>
        ))}
      </td>
    </tr>
  );
}
