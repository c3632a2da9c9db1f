// What the console's page uses of preact/hooks.
export declare function useState<S>(first: S | (() => S)): [S, (next: S | ((known: S) => S)) => void];
export declare function useEffect(effect: () => void | undefined | (() => void), inputs?: readonly unknown[]): void;
export declare function useRef<T>(first: T): { current: T };
