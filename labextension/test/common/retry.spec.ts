/** Code that is loaded after the page. */
import { loadWithRetries } from '../../src/common/retry';

let warned: jest.SpyInstance;

beforeEach(() => {
  jest.useFakeTimers();
  warned = jest.spyOn(console, 'warn').mockImplementation(() => undefined);
});

afterEach(() => {
  warned.mockRestore();
  jest.useRealTimers();
});

test('a successful load is not repeated', async () => {
  const load = jest.fn().mockResolvedValue('code');
  await expect(loadWithRetries('it', load)).resolves.toBe('code');
  expect(load).toHaveBeenCalledTimes(1);
  expect(warned).not.toHaveBeenCalled();
});

test('a load is retried while the server is away', async () => {
  const load = jest.fn().mockRejectedValueOnce('away').mockRejectedValueOnce('away');
  const found = loadWithRetries('it', load.mockResolvedValue('code'));
  await jest.advanceTimersByTimeAsync(2999);
  expect(load).toHaveBeenCalledTimes(2);
  await jest.advanceTimersByTimeAsync(1);
  await expect(found).resolves.toBe('code');
});

test('a load that always fails gives null', async () => {
  const load = jest.fn().mockRejectedValue('gone');
  const found = loadWithRetries('it', load);
  await jest.advanceTimersByTimeAsync(15_000);
  await expect(found).resolves.toBeNull();
  expect(load).toHaveBeenCalledTimes(5);
  expect(warned).toHaveBeenCalledTimes(5);
});
