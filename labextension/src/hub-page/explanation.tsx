/** The answer to "why 2?" for one user. */
import React from 'react';
import { versionOf } from '../hub-api/changes';
import { readExplanation } from '../hub-api/details';
import { usePage } from '../hub-common/context';
import { Dialog } from '../hub-common/dialog';
import { HoursChart } from '../hub-common/hours-chart';
import { Listing } from '../hub-common/listing';
import { Problem } from '../hub-common/messages';
import { useResource } from '../hub-common/resource';
import { fieldText } from '../hub-model/field';
import { subjectName } from '../hub-model/subject';
import { Pods } from './own';

/** A dialog with the limits that count for a user, and why each holds or does not. */
export function Explanation(props: {
  readonly user: string;
  readonly onClose: () => void;
}): React.JSX.Element {
  const { api, trans, counts } = usePage();
  const { user, onClose } = props;
  const version = versionOf(counts, 'users', 'limits');
  const path = `explain/${encodeURIComponent(user)}`;
  const { value, error } = useResource(api, path, readExplanation, version);
  return (
    <Dialog title={trans.__('The limit of user %1', user)} onClose={onClose}>
      {error && <Problem error={error} trans={trans} />}
      {value && (
        <>
          <p>{value.sentence}</p>
          {value.limits.length > 0 && (
            <Listing
              className="table-sm"
              heads={[trans.__('Limit for'), trans.__('Amount'), trans.__('Does it hold?')]}
            >
              {value.limits.map(step => (
                <tr key={step.object}>
                  <th scope="row">
                    {step.subject ? subjectName(step.subject, trans) : step.object}
                  </th>
                  <td>{step.value === null ? '–' : fieldText('max', step.value, trans)}</td>
                  <td>{step.reason}</td>
                </tr>
              ))}
            </Listing>
          )}
          {value.pods.length > 0 && <Pods pods={value.pods} />}
          <HoursChart hours={value.hours} />
        </>
      )}
      <div className="d-flex justify-content-end mt-3">
        <button type="button" className="btn btn-secondary" onClick={onClose}>
          {trans.__('Close')}
        </button>
      </div>
    </Dialog>
  );
}
