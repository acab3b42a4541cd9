/** The page of an administrator: the cluster's bar, and one of four parts. */
import React, { useState } from 'react';
import { IMe } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Audit } from './audit';
import { ClusterBar } from './cluster-bar';
import { OwnLimit } from './own';
import { Table } from './table';
import { Transfer } from './transfer';

type Part = 'limits' | 'changes' | 'files' | 'own';

/** The parts, with buttons to choose one. */
export function AdminPage({ me }: { readonly me: IMe }): React.JSX.Element {
  const { trans } = usePage();
  const [shown, setShown] = useState<Part>('limits');
  const parts: readonly (readonly [Part, string])[] = [
    ['limits', trans.__('Limits')],
    ['changes', trans.__('Changes')],
    ['files', trans.__('Import and export')],
    ['own', trans.__('Your GPUs')]
  ];
  return (
    <>
      <ClusterBar />
      <nav className="d-flex flex-wrap gap-2 mb-3" aria-label={trans.__('Parts of this page')}>
        {parts.map(([part, title]) => (
          <button
            key={part}
            type="button"
            className={`btn btn-sm ${part === shown ? 'btn-primary' : 'btn-secondary'}`}
            aria-current={part === shown ? 'page' : undefined}
            onClick={() => setShown(part)}
          >
            {title}
          </button>
        ))}
      </nav>
      <div hidden={shown !== 'limits'}>
        <Table mayEdit={me.mayEdit} hub={me.hub} />
      </div>
      {shown === 'changes' && <Audit />}
      {shown === 'files' && <Transfer mayEdit={me.mayEdit} />}
      {shown === 'own' && <OwnLimit me={me} />}
    </>
  );
}
