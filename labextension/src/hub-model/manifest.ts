/** A limit as an object for `kubectl` and for tools that keep objects. Pure. */
import { Fields, ISubject } from '../hub-api/limits';

/**
 * The object as YAML; fields that are inherited are left out. Values are JSON, which YAML contains, so that no name can be anything
 * else than text.
 */
export function manifest(object: string, subject: ISubject, fields: Fields): string {
  const { kind, name, hub } = subject;
  const whom = { kind, ...(name && { name }), ...(hub && { hub }) };
  const set = Object.entries(fields).filter(([, value]) => (value ?? null) !== null);
  return [
    'apiVersion: jupyter-gpu.io/v1alpha1',
    'kind: GpuLimit',
    `metadata: {name: ${JSON.stringify(object)}}`,
    'spec:',
    `  subject: ${JSON.stringify(whom)}`,
    ...set.map(([name, value]) => `  ${name}: ${JSON.stringify(value)}`)
  ].join('\n');
}
