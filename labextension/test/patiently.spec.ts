/** Code that is loaded later. */
import { patiently } from '../src/patiently';

let warned: jest.SpyInstance;

beforeEach(() => {
  jest.useFakeTimers();
  warned = jest.spyOn(console, 'warn').mockImplementation(() => undefined);
});

afterEach(() => {
  warned.mockRestore();
  jest.useRealTimers();
});

test('what comes at once is not asked for again', async () => {
  const load = jest.fn().mockResolvedValue('code');
  await expect(patiently('it', load)).resolves.toBe('code');
  expect(load).toHaveBeenCalledTimes(1);
  expect(warned).not.toHaveBeenCalled();
});

test('a server that is away for some seconds', async () => {
  const load = jest.fn().mockRejectedValueOnce('away').mockRejectedValueOnce('away');
  const found = patiently('it', load.mockResolvedValue('code'));
  await jest.advanceTimersByTimeAsync(2999);
  expect(load).toHaveBeenCalledTimes(2);
  await jest.advanceTimersByTimeAsync(1);
  await expect(found).resolves.toBe('code');
});

test('what never comes', async () => {
  const load = jest.fn().mockRejectedValue('gone');
  const found = patiently('it', load);
  await jest.advanceTimersByTimeAsync(15_000);
  await expect(found).resolves.toBeNull();
  expect(load).toHaveBeenCalledTimes(5);
  expect(warned).toHaveBeenCalledTimes(5);
});
