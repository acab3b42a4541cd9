/** The list of changes: who changed which limit when, from what to what. */
import React, { useState } from 'react';
import { versionOf } from '../hub-api/changes';
import { readAudit } from '../hub-api/details';
import { usePage } from '../hub-common/context';
import { Listing } from '../hub-common/listing';
import { Problem } from '../hub-common/messages';
import { Pages } from '../hub-common/pages';
import { useResource } from '../hub-common/resource';
import { changeTexts } from '../hub-model/field';
import { SIZE } from '../hub-model/query';
import { subjectName } from '../hub-model/subject';
import { time } from './row';

/** The newest changes first. */
export function Audit(): React.JSX.Element {
  const { api, trans, counts } = usePage();
  const [page, setPage] = useState(1);
  const path = `audit?page=${page}&size=${SIZE}`;
  const { value, error } = useResource(api, path, readAudit, versionOf(counts, 'limits'));
  return (
    <section aria-label={trans.__('Changes')}>
      {error && <Problem error={error} trans={trans} />}
      <p>
        {trans.__(
          'The last 20 changes of each limit, and the last five of limits that were removed here.'
        )}
      </p>
      <Listing
        heads={[trans.__('When'), trans.__('By whom'), trans.__('Limit for'), trans.__('Change')]}
      >
        {value?.items.map((item, i) => (
          <tr key={`${item.object} ${item.at} ${i}`}>
            <td>
              <time dateTime={item.at}>{time(item.at, trans)}</time>
            </td>
            <td>{item.by}</td>
            <td>{item.subject ? subjectName(item.subject, trans) : item.object}</td>
            <td>
              {changeTexts(item.from, item.to, trans).map(text => (
                <div key={text}>{text}</div>
              ))}
            </td>
          </tr>
        ))}
      </Listing>
      {value && <Pages page={page} total={value.total} onChange={setPage} />}
    </section>
  );
}
