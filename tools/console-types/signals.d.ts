// What the console's page uses of @preact/signals.
export interface Signal<T = any> { value: T }
export declare function signal<T>(first: T): Signal<T>;
