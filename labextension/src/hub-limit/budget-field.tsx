/** The budget: GPU-hours, and the window of the calendar in which they are counted. */
import React from 'react';
import { Window, WINDOWS } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { ChosenField, IFormContext, LimitField } from './limit-field';

/** The choice, the amount and the window. */
export function BudgetField({ form }: { readonly form: IFormContext }): React.JSX.Element {
  const { trans } = usePage();
  const { budget } = form.draft;
  const windows: Readonly<Record<Window, string>> = {
    Day: trans.__('a day'),
    Week: trans.__('a week'),
    Month: trans.__('a month')
  };
  return (
    <LimitField name="budget" form={form} errors={[form.wrong('budget')]}>
      {texts => (
        <div className="gpu-Line">
          <ChosenField
            name="budget"
            form={form}
            value={budget}
            onChange={value => form.set({ budget: { ...budget, ...value } })}
            texts={texts}
          />
          {budget.choice === 'value' && (
            <select
              className="form-select form-select-sm w-auto"
              aria-label={trans.__('Window of the budget')}
              value={budget.window}
              disabled={form.locked}
              onChange={event =>
                form.set({ budget: { ...budget, window: event.target.value as Window } })
              }
            >
              {WINDOWS.map(window => (
                <option key={window} value={window}>
                  {windows[window]}
                </option>
              ))}
            </select>
          )}
        </div>
      )}
    </LimitField>
  );
}
