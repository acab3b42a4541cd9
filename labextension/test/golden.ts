import { readFileSync } from 'fs';
import { join } from 'path';

/** One case of a golden file, which the Python tests read too. */
export interface ICase {
  readonly name: string;
  readonly view?: unknown;
  readonly sample?: unknown;
  readonly details?: unknown;
  readonly machine?: unknown;
  readonly sentence?: string;
  readonly described?: string;
}

/** The cases of `tests/golden/<name>.json`, never none. */
export function golden(name: string): ICase[] {
  const path = join(__dirname, '..', '..', 'tests', 'golden', `${name}.json`);
  const cases = JSON.parse(readFileSync(path, 'utf-8')) as ICase[];
  if (cases.length === 0) {
    throw new Error(`${path} is empty`);
  }
  return cases;
}
