/** One field of a limit: its name and what it is for, the controls, what is wrong, and what holds now. */
import React, { useId } from 'react';
import { ISubjectDetails } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { IControl } from '../hub-common/field';
import { CHOICES, Choice, IChosen, IDraft, SimpleField } from '../hub-model/draft';
import { told } from '../hub-model/effective';
import { FieldName, fieldLabel } from '../hub-model/field';
import { choiceNames, exampleOf, helpOf, unitOf } from '../hub-model/form-words';
import { Chosen } from './chosen';

/** What all fields of the form share. */
export interface IFormContext {
  readonly details: ISubjectDetails;
  readonly draft: IDraft;
  readonly locked: boolean;
  /** What is wrong with a control; empty: nothing, or it is still typed. */
  readonly wrong: (path: string) => string;
  readonly set: (part: Partial<IDraft>) => void;
}

/** Properties of a field. */
export interface ILimitFieldProps {
  readonly name: FieldName;
  readonly form: IFormContext;
  /** Sentences about what is wrong. */
  readonly errors: readonly string[];
  /** Renders the controls. */
  readonly children: (
    texts: Pick<IControl, 'aria-describedby' | 'aria-invalid'>
  ) => React.ReactNode;
}

/** Name and help on one side, controls and what holds on the other. */
export function LimitField({ name, form, errors, children }: ILimitFieldProps): React.JSX.Element {
  const { trans } = usePage();
  const id = useId();
  const wrong = errors.filter(Boolean);
  const texts = [`${id}-help`, wrong.length && `${id}-error`].filter(Boolean).join(' ');
  return (
    <div role="group" aria-labelledby={`${id}-name`} className="gpu-Field">
      <div>
        <div id={`${id}-name`} className="fw-semibold">
          {fieldLabel(name, trans)}
        </div>
        <div id={`${id}-help`} className="gpu-Source">
          {helpOf(name, form.details.timeZone, trans)}
        </div>
      </div>
      <div>
        {children({ 'aria-describedby': texts, 'aria-invalid': wrong.length ? true : undefined })}
        <div id={`${id}-error`} role="status" className="text-danger-emphasis">
          {wrong.map(error => (
            <div key={error}>{error}</div>
          ))}
        </div>
        <div className="gpu-Source">
          {told(name, form.details.effective, trans).map(({ value, source }) => (
            <div key={`${value} ${source}`}>{trans.__('Now: %1, %2', value, source)}</div>
          ))}
        </div>
      </div>
    </div>
  );
}

/** A field that is a choice and a text. */
export function SimpleLimitField(props: {
  readonly name: SimpleField;
  readonly form: IFormContext;
}): React.JSX.Element {
  const { name, form } = props;
  return (
    <LimitField name={name} form={form} errors={[form.wrong(name)]}>
      {texts => (
        <ChosenField
          name={name}
          form={form}
          value={form.draft[name]}
          onChange={value => form.set({ [name]: value })}
          texts={texts}
        />
      )}
    </LimitField>
  );
}

/** The controls of a field whose choices are those of its name. */
export function ChosenField(props: {
  readonly name: keyof typeof CHOICES;
  readonly form: IFormContext;
  readonly value: IChosen;
  readonly onChange: (value: IChosen) => void;
  readonly texts: Pick<IControl, 'aria-describedby' | 'aria-invalid'>;
}): React.JSX.Element {
  const { trans } = usePage();
  const { name, form, value, onChange, texts } = props;
  const names: Readonly<Record<Choice, string>> = choiceNames(name, form.details.inherited, trans);
  return (
    <Chosen
      path={name}
      label={fieldLabel(name, trans)}
      choices={CHOICES[name]}
      names={names}
      value={value}
      onChange={onChange}
      example={exampleOf(name)}
      unit={unitOf(name, trans)}
      disabled={form.locked}
      texts={texts}
    />
  );
}
