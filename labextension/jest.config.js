/** Tests of the logic; what needs a browser is in ui-tests/. */
const esModules = ['@jupyterlab', '@jupyter', 'lib0', 'y-protocols', 'yjs', 'nanoid'].join('|');

process.env.TZ = 'UTC'; // the golden files have times of day

module.exports = {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.{ts,tsx}'],
  transform: {
    '^.+\\.[jt]sx?$': ['ts-jest', { tsconfig: 'tsconfig.test.json', diagnostics: false }]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules})/)`],
  collectCoverageFrom: ['src/**/*.{ts,tsx}'],
  coverageDirectory: 'coverage'
};
