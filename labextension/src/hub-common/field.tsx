/** A control with its label, a line of help, and what is wrong with it. */
import React, { useId } from 'react';

/** Attributes that tie a control to its label and to the texts about it. */
export interface IControl {
  readonly id: string;
  readonly 'aria-describedby'?: string;
  readonly 'aria-invalid'?: true;
}

/** Properties of a field. */
export interface IFieldProps {
  readonly label: string;
  readonly help?: string;
  /** Empty: nothing is wrong; absent: nothing can be. */
  readonly error?: string;
  readonly className?: string;
  /** Renders the control with these attributes. */
  readonly children: (control: IControl) => React.ReactNode;
}

/** The label above the control, the texts below it. */
export function Field(props: IFieldProps): React.JSX.Element {
  const { label, help, error, className, children } = props;
  const id = useId();
  const texts = [help && `${id}-help`, error && `${id}-error`].filter(Boolean).join(' ');
  return (
    <div className={className}>
      <label htmlFor={id} className="form-label mb-0">
        {label}
      </label>
      {children({
        id,
        'aria-describedby': texts || undefined,
        'aria-invalid': error ? true : undefined
      })}
      {help && (
        <div id={`${id}-help`} className="gpu-Source">
          {help}
        </div>
      )}
      {error !== undefined && (
        <div id={`${id}-error`} role="status" className="text-danger-emphasis">
          {error}
        </div>
      )}
    </div>
  );
}
