/** `Machine` with its style, loaded when the section is opened. */
import '../../style/machine.css';
export { default } from './machine';
