/** What is meant by a field of a limit: inherit, nothing, unlimited, or the text beside it. */
import React from 'react';
import { usePage } from '../hub-common/context';
import { IControl } from '../hub-common/field';
import { Choice, IChosen } from '../hub-model/draft';

/** Properties of the two controls. */
export interface IChosenProps {
  /** Its path, `max` or `hours.1.max`, by which it is told which control is left. */
  readonly path: string;
  readonly label: string;
  readonly choices: readonly Choice[];
  readonly names: Readonly<Record<Choice, string>>;
  readonly value: IChosen;
  readonly onChange: (value: IChosen) => void;
  /** An example; empty: no text belongs to the choice. */
  readonly example: string;
  /** The unit beside the text, such as GPUs. */
  readonly unit?: string;
  readonly disabled: boolean;
  readonly texts: Pick<IControl, 'aria-describedby' | 'aria-invalid'>;
}

/** A list of choices, and a text field where one of them needs it. */
export function Chosen(props: IChosenProps): React.JSX.Element {
  const { trans } = usePage();
  const { path, label, choices, names, value, onChange, example, unit, disabled, texts } = props;
  const typed = value.choice === 'value' && example;
  return (
    <div className="gpu-Chosen">
      <select
        className="form-select form-select-sm"
        aria-label={label}
        value={value.choice}
        disabled={disabled}
        {...(typed ? {} : texts)}
        onChange={event => onChange({ ...value, choice: event.target.value as Choice })}
      >
        {choices.map(choice => (
          <option key={choice} value={choice}>
            {names[choice]}
          </option>
        ))}
      </select>
      {typed && (
        <>
          <input
            name={path}
            className="form-control form-control-sm"
            aria-label={trans.__('%1: value', label)}
            placeholder={example}
            value={value.text}
            maxLength={32}
            autoComplete="off"
            spellCheck={false}
            disabled={disabled}
            {...texts}
            onChange={event => onChange({ ...value, text: event.target.value })}
          />
          {unit && <span>{unit}</span>}
        </>
      )}
    </div>
  );
}
