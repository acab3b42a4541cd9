/**
 * Strict readers for JSON from outside: a value has exactly the type that the contract says, or
 * the reader throws a `FieldError` that names the field. Unknown fields are ignored, so that
 * an older page understands a newer server.
 */

/** A field that is not what the contract says. */
export class FieldError extends Error {
  constructor(
    readonly field: string,
    expected: string
  ) {
    super(`'${field}' must be ${expected}.`);
    this.name = 'FieldError';
  }
}

/** Reads one value; `field` is its path, for the error. */
export type Reader<T> = (value: unknown, field: string) => T;

/** A JSON object whose fields are read one by one. */
export class Fields {
  constructor(
    private readonly body: Record<string, unknown>,
    private readonly path: string
  ) {}

  /** The field `key`, which must be there. */
  get<T>(key: string, read: Reader<T>): T {
    return read(this.body[key], this.at(key));
  }

  /** The field `key`, or `null` where it is absent or null. */
  maybe<T>(key: string, read: Reader<T>): T | null {
    return this.get(key, nullable(read));
  }

  private at(key: string): string {
    return this.path ? `${this.path}.${key}` : key;
  }
}

/** An object. */
export const fields: Reader<Fields> = (value, field) => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new FieldError(field, 'an object');
  }
  return new Fields(value as Record<string, unknown>, field);
};

/** An object with these fields, each read by its reader. */
export const record =
  <T>(readers: { readonly [K in keyof T]-?: Reader<T[K]> }): Reader<T> =>
  (value, field) => {
    const body = fields(value, field);
    const keys = Object.keys(readers) as (keyof T & string)[];
    return Object.fromEntries(keys.map(key => [key, body.get(key, readers[key])])) as T;
  };

/** Returns the value that `read` reads, or `instead` if it is absent or null. */
export const maybe =
  <T, I = undefined>(read: Reader<T>, instead?: I): Reader<T | I> =>
  (value, field) =>
    value === undefined || value === null ? (instead as I) : read(value, field);

/** Returns the value that `read` reads, or `null` if it is absent. */
export const nullable = <T>(read: Reader<T>): Reader<T | null> => maybe(read, null);

/** A text of at most `limit` characters. */
export const text =
  (limit: number): Reader<string> =>
  (value, field) => {
    if (typeof value !== 'string' || value.length > limit) {
      throw new FieldError(field, `a text of at most ${limit} characters`);
    }
    return value;
  };

/** True or false. */
export const boolean: Reader<boolean> = (value, field) => {
  if (typeof value !== 'boolean') {
    throw new FieldError(field, 'true or false');
  }
  return value;
};

/** A finite number between `low` and `high`, both included. */
export const number =
  (low: number, high: number): Reader<number> =>
  (value, field) => {
    if (typeof value !== 'number' || !(value >= low && value <= high)) {
      throw new FieldError(field, `a number from ${low} to ${high}`);
    }
    return value;
  };

/** An integer between `low` and `high`, both included. */
export const integer =
  (low: number, high: number): Reader<number> =>
  (value, field) => {
    if (!Number.isInteger(value) || (value as number) < low || (value as number) > high) {
      throw new FieldError(field, `an integer from ${low} to ${high}`);
    }
    return value as number;
  };

/** The largest integer that is exact. */
export const MAX_EXACT = Number.MAX_SAFE_INTEGER;

/** An integer that counts something. */
export const count = integer(0, MAX_EXACT);

/** One of the given words. */
export const oneOf =
  <T extends string>(...words: readonly T[]): Reader<T> =>
  (value, field) => {
    if (!words.includes(value as T)) {
      throw new FieldError(field, `one of ${words.join(', ')}`);
    }
    return value as T;
  };

/** A list of at most `limit` items. */
export const listOf =
  <T>(read: Reader<T>, limit: number): Reader<readonly T[]> =>
  (value, field) => {
    if (!Array.isArray(value) || value.length > limit) {
      throw new FieldError(field, `a list of at most ${limit} items`);
    }
    return value.map((item, i) => read(item, `${field}[${i}]`));
  };
