/** The choice whether whole GPUs may serve others while they rest, where no limit says that. */
import React from 'react';
import { IChoiceProps, useChoice, wanted } from './choice';

/** A tick; the amount stays as it is. */
export function Lending(props: IChoiceProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const [lends, ask] = useChoice(model, view.lendable);
  if (view.lendable === null) {
    return null;
  }
  return (
    <label
      className="jp-gpu-Toggle jp-gpu-Placement"
      title={trans.__(
        'Others may use whole GPUs that do nothing, and up to a quarter of their memory. Your programs come first.'
      )}
    >
      <input
        type="checkbox"
        checked={lends === true}
        disabled={disabled}
        onChange={({ target: { checked } }) =>
          ask(checked, { milli: wanted(props), lendable: checked })
        }
      />
      {trans.__('Lend while I rest')}
    </label>
  );
}
