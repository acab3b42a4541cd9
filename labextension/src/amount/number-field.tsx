/** A field for a number; Enter or leaving the field makes the request. */
import React, { useId, useState } from 'react';

/** Properties of the field. */
export interface INumberProps {
  /** The value, as it is written. */
  readonly value: string;
  /** Its name for those who listen, where no label has its id. */
  readonly label?: string;
  /** The words about a text that is no value. */
  readonly wrong: string;
  readonly disabled: boolean;
  /** Id of the element, and of one that describes it. */
  readonly id?: string;
  readonly describedBy?: string;
  /** Returns the value of what is typed, `null` if it is none. */
  readonly read: (typed: string) => number | null;
  readonly onCommit: (value: number) => void;
}

/** The field, and below it what is wrong with the text in it. */
export function NumberField(props: INumberProps): React.JSX.Element {
  const [typed, setTyped] = useState<string | null>(null);
  const errorId = useId();
  const value = typed === null ? null : props.read(typed);
  const wrong = typed !== null && value === null;
  const finish = () => {
    if (value !== null) {
      setTyped(null);
      props.onCommit(value);
    }
  };
  return (
    <>
      <input
        id={props.id}
        className="jp-gpu-Number"
        type="text"
        inputMode="decimal"
        autoComplete="off"
        value={typed ?? props.value}
        disabled={props.disabled}
        aria-label={props.label}
        aria-describedby={props.describedBy}
        aria-invalid={wrong}
        aria-errormessage={wrong ? errorId : undefined}
        data-lm-suppress-shortcuts="true"
        onChange={event => setTyped(event.target.value)}
        onBlur={() => {
          finish();
          setTyped(null);
        }}
        onKeyDown={event => {
          if (event.key === 'Enter') {
            finish();
          } else if (event.key === 'Escape') {
            setTyped(null);
          }
        }}
      />
      {wrong && (
        <span className="jp-gpu-Number-error" id={errorId} role="alert">
          {props.wrong}
        </span>
      )}
    </>
  );
}
