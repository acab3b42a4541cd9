/** All fields of the limit of one subject, in four groups, with a dry run of what they would do. */
import React, { useEffect, useRef, useState } from 'react';
import { ILimitFields, ISubjectDetails } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { ISaving } from '../hub-common/saving';
import { FIELDS } from '../hub-model/field';
import { manifest } from '../hub-model/manifest';
import { lockOf } from '../hub-model/subject';
import { BudgetField } from './budget-field';
import { HoursField } from './hours-field';
import { IFormContext, SimpleLimitField } from './limit-field';
import { LimitFoot } from './limit-foot';
import { ModelsField } from './models-field';
import { useDraft } from './use-draft';
import { IDryRun, usePreview } from './use-preview';

/** Properties of the form. */
export interface ILimitFormProps {
  /** The subject as it is now. */
  readonly details: ISubjectDetails;
  /** The fields of its limit when the edit began. */
  readonly before: ILimitFields;
  readonly mayEdit: boolean;
  readonly saving: ISaving;
  readonly onLeave: () => void;
  readonly onSaved: () => void;
  /** Told whether something would be lost by closing. */
  readonly onDirty: (dirty: boolean) => void;
}

/** The form; an edit is for the version that was seen when it began. */
export function LimitForm(props: ILimitFormProps): React.JSX.Element {
  const { trans, machine } = usePage();
  const { details, mayEdit, saving, onLeave, onSaved, onDirty } = props;
  const [seen] = useState(details);
  const [before] = useState(props.before);
  const { draft, fields, errors, edit, dirty, set } = useDraft(seen, before);
  const run = usePreview(mayEdit ? edit : null);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [tried, setTried] = useState(0);
  const form = useRef<HTMLFormElement>(null);
  const lock = lockOf(seen, trans, machine);
  const cap = seen.subject.kind === 'Cap';
  const asObject = machine ? trans.__('As an object') : trans.__('As an object for kubectl');

  useEffect(() => onDirty(dirty), [dirty, onDirty]);
  useEffect(() => {
    const fields = form.current!;
    const leave = ({ target }: FocusEvent) => {
      if (target instanceof HTMLInputElement && target.name) {
        setLeft(before => new Set([...before, target.name]));
      }
    };
    fields.addEventListener('focusout', leave);
    return () => fields.removeEventListener('focusout', leave);
  }, []);
  useEffect(() => {
    if (tried) {
      form.current?.querySelector<HTMLElement>('[aria-invalid]')?.focus();
    }
  }, [tried]);

  function wrong(path: string): string {
    const own = tried || left.has(path) ? errors[path] : '';
    return own || (refusedFields(run).includes(path) ? run.refused!.message : '');
  }
  function save(event: React.FormEvent): void {
    event.preventDefault();
    if (Object.keys(errors).length) {
      setTried(tried + 1);
    } else if (mayEdit && !lock) {
      void saving.propose(edit ? [edit] : [], { done: onSaved });
    }
  }
  const context: IFormContext = {
    details,
    draft,
    locked: !mayEdit || (Boolean(lock) && !cap),
    wrong,
    set
  };
  const simple = (name: Parameters<typeof SimpleLimitField>[0]['name']) => (
    <SimpleLimitField name={name} form={context} />
  );
  return (
    <form ref={form} className="gpu-Form" onSubmit={save}>
      <div className="gpu-Fields">
        {lock && <p className="alert alert-info">{lock}</p>}
        {details.notes.map(note => (
          <p key={note} className="alert alert-warning">
            {note}
          </p>
        ))}
        <Group title={trans.__('How many')}>
          {simple('max')}
          {simple('guaranteed')}
        </Group>
        <Group title={trans.__('When')}>
          <HoursField form={context} />
          <BudgetField form={context} />
          {simple('idleTimeout')}
          {simple('grace')}
        </Group>
        <Group title={trans.__('Which GPUs')}>
          <ModelsField form={context} />
          {simple('memory')}
          {simple('remote')}
          {simple('lendable')}
        </Group>
        <Group title={trans.__('Among those who wait')}>
          {simple('weight')}
          {simple('priority')}
        </Group>
        <details open={cap}>
          <summary>{asObject}</summary>
          <textarea
            readOnly
            className="form-control font-monospace mb-3"
            rows={8}
            aria-label={asObject}
            value={manifest(seen.object, seen.subject, fields)}
          />
        </details>
      </div>
      <LimitFoot
        details={details}
        seen={seen}
        dirty={dirty}
        run={run}
        mayEdit={mayEdit && !lock}
        saving={saving}
        onLeave={onLeave}
        onSaved={onSaved}
      />
    </form>
  );
}

/** The fields that the service named in a refusal. */
function refusedFields({ refused }: IDryRun): readonly string[] {
  const field = refused?.details.field;
  const names = typeof field === 'string' ? field.split(', ') : [];
  return names.filter(name => FIELDS.some(known => known === name));
}

function Group(props: {
  readonly title: string;
  readonly children: React.ReactNode;
}): React.JSX.Element {
  return (
    <section className="gpu-Group">
      <h3 className="h6">{props.title}</h3>
      {props.children}
    </section>
  );
}
