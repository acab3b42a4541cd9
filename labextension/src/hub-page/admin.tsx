/** The page of somebody who may see all limits. */
import React from 'react';
import { IMe } from '../hub-api/limits';
import { ClusterBar } from './cluster-bar';
import { Table } from './table';

/** The cluster's bar and the table. */
export function AdminPage({ me }: { readonly me: IMe }): React.JSX.Element {
  return (
    <>
      <ClusterBar />
      <Table mayEdit={me.mayEdit} />
    </>
  );
}
