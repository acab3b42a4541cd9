/** The bar of the cluster's GPUs. */
import React from 'react';
import { versionOf } from '../hub-api/changes';
import { ICluster, readCluster } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { useResource } from '../hub-common/resource';
import { clusterText, parts } from '../hub-model/cluster';

/** The bar, with the same in words below. */
export function ClusterBar(): React.JSX.Element | null {
  const { api, counts } = usePage();
  const { value } = useResource(api, 'cluster', readCluster, versionOf(counts, 'cluster'));
  return value && <Bar cluster={value} />;
}

function Bar({ cluster }: { readonly cluster: ICluster }): React.JSX.Element {
  const { trans, machine } = usePage();
  return (
    <section
      aria-label={machine ? trans.__('GPUs of this machine') : trans.__('GPUs of the cluster')}
      className="mb-3"
    >
      <div className="gpu-Bar" aria-hidden="true">
        {parts(cluster, trans).map(part => (
          <div
            key={part.key}
            className={`gpu-Bar-${part.key}`}
            style={{ width: `${part.width}%` }}
          />
        ))}
      </div>
      <p className="mb-0">{clusterText(cluster, trans, machine)}</p>
    </section>
  );
}
